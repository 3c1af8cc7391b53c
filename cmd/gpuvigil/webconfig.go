package main

import (
	"fmt"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/exporter-toolkit/web"
)

// webAuthenticated reports whether the web configuration lets nobody in who has
// not proved who he is: only then are page and API served beyond this machine.
func webAuthenticated(file string) (bool, error) {
	if file == "" {
		return false, nil
	}
	if err := web.Validate(file); err != nil {
		return false, fmt.Errorf("read the web configuration %s: %w: see --web.config.file", file, err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("read the web configuration: %w", err)
	}
	var c struct {
		Users map[string]any `yaml:"basic_auth_users"`
		TLS   struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(source, &c); err != nil {
		return false, fmt.Errorf("read the web configuration %s: %s", file, yaml.FormatError(err, false, false))
	}
	return len(c.Users) > 0 || c.TLS.ClientAuth == "RequireAndVerifyClientCert", nil
}
