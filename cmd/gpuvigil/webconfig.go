package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/exporter-toolkit/web"
)

// webConfig is the web configuration as far as it decides who sees the page and
// the API. The toolkit reads the file anew for each request, so this does too
// whenever it has changed: users that are taken out must not leave the page open.
type webConfig struct {
	file string
	log  *slog.Logger

	mu            sync.Mutex
	changed       time.Time // of the file, when it was read
	authenticated bool
}

// openWebConfig checks the file once, so that a bad one stops the start. An empty
// name means that there is none.
func openWebConfig(file string, log *slog.Logger) (*webConfig, error) {
	c := &webConfig{file: file, log: log}
	if file == "" {
		return c, nil
	}
	if err := web.Validate(file); err != nil {
		return nil, fmt.Errorf("read the web configuration %s: %w: see --web.config.file", file, err)
	}
	return c, c.read()
}

// Authenticated reports whether nobody is let in who has not proved who he is.
func (c *webConfig) Authenticated() bool {
	if c.file == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(); err != nil {
		c.log.Warn("The web configuration cannot be read: page and API are served to this machine only.", "err", err)
		c.authenticated = false
	}
	return c.authenticated
}

func (c *webConfig) read() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refresh()
}

func (c *webConfig) refresh() error {
	info, err := os.Stat(c.file)
	if err != nil {
		return err
	}
	if info.ModTime().Equal(c.changed) {
		return nil
	}
	source, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	var f struct {
		Users map[string]any `yaml:"basic_auth_users"`
		TLS   struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(source, &f); err != nil {
		return errors.New(yaml.FormatError(err, false, false))
	}
	c.changed = info.ModTime()
	c.authenticated = len(f.Users) > 0 || f.TLS.ClientAuth == "RequireAndVerifyClientCert"
	return nil
}
