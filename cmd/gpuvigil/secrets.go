package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/slack"
	"gpuvigil/collector/page"
	"gpuvigil/internal/config"
)

// maxSecretBytes is more than any token or URL needs.
const maxSecretBytes = 64 << 10

// secret returns a function that reads a secret each time it is needed, from a
// file or from the environment, so that it can be replaced while the agent runs.
// No error of it holds the secret.
func secret(file, env string) func() (string, error) {
	if env != "" {
		return func() (string, error) {
			if v := strings.TrimSpace(os.Getenv(env)); v != "" {
				return v, nil
			}
			return "", fmt.Errorf("environment variable %s is not set", env)
		}
	}
	return func() (string, error) {
		content, err := config.ReadFile(file, maxSecretBytes)
		if err != nil {
			return "", fmt.Errorf("%w: name a file that this user can read", err)
		}
		v := strings.TrimSpace(string(content))
		if v == "" {
			return "", fmt.Errorf("%s is empty", file)
		}
		return v, nil
	}
}

// slackReceiver is a way to Slack that can be tried without posting.
type slackReceiver interface {
	alerting.Notifier
	Check(context.Context) (string, error)
}

// slackNotifier returns the way to a channel that the configuration names. It
// reads the secret once, so that one that cannot be read stops the start.
func slackNotifier(s config.Slack, log *slog.Logger) (slackReceiver, error) {
	if s.WebhookFile != "" || s.WebhookEnv != "" {
		return slack.NewWebhook(slack.WebhookConfig{
			URL: secret(s.WebhookFile, s.WebhookEnv), Log: log,
		})
	}
	return slack.NewBot(slack.BotConfig{
		Token: secret(s.TokenFile, s.TokenEnv), AppToken: slack.Secret(given(s.AppTokenFile, s.AppTokenEnv)),
		Channel: s.Channel, Charts: s.Charts, APIURL: s.APIURL, Log: log.With("receiver", s.Name),
	})
}

// checkSecrets reads every secret and certificate that an agent's configuration names
// once. The error has the place of each that cannot be used.
func checkSecrets(c *config.Config) error {
	var errs []error
	for i, s := range c.Alerting.Slack {
		if app := given(s.AppTokenFile, s.AppTokenEnv); app != nil {
			if _, err := app(); err != nil {
				key := fmt.Sprintf("alerting.slack[%d]", i) + givenKey(map[string]string{".app_token_file": s.AppTokenFile, ".app_token_env": s.AppTokenEnv})
				errs = append(errs, placed(c, key, fmt.Errorf("receiver %s: read the app token: %w", s.Name, err)))
				continue
			}
		}
		if _, err := slackNotifier(s, slog.New(slog.DiscardHandler)); err != nil {
			key := fmt.Sprintf("alerting.slack[%d]", i) + givenKey(map[string]string{
				".token_file": s.TokenFile, ".token_env": s.TokenEnv, ".webhook_url_file": s.WebhookFile, ".webhook_url_env": s.WebhookEnv})
			errs = append(errs, placed(c, key, fmt.Errorf("receiver %s: %w", s.Name, err)))
		}
	}
	for i, t := range c.Inference.Targets {
		errs = append(errs, checkPage(c, fmt.Sprintf("inference.targets[%d]", i), t.Page))
	}
	errs = append(errs, checkTargetSecrets(c), checkPage(c, "nvml.source", c.NVML.Source.Page), checkPage(c, "host.source", c.Host.Source.Page))
	errs = append(errs, checkPush(c, "push", &c.Push))
	_, err := userKey(c)
	return errors.Join(append(errs, err)...)
}

// checkPage reads what it takes to be given a page once.
func checkPage(c *config.Config, key string, p config.Page) error {
	var errs []error
	a := address(p)
	if a.Token != nil {
		if _, err := a.Token(); err != nil {
			errs = append(errs, placed(c, key+givenKey(map[string]string{".bearer_token_file": p.BearerTokenFile, ".bearer_token_env": p.BearerTokenEnv}),
				fmt.Errorf("read the bearer token: %w", err)))
		}
	}
	if a.Password != nil {
		if _, err := a.Password(); err != nil {
			errs = append(errs, placed(c, key+givenKey(map[string]string{".password_file": p.PasswordFile, ".password_env": p.PasswordEnv}),
				fmt.Errorf("read the password: %w", err)))
		}
	}
	if _, err := page.New(a, time.Second); err != nil {
		errs = append(errs, placed(c, key+".tls.ca_file", err))
	}
	return errors.Join(errs...)
}

// givenKey returns which of the keys has a value; empty: none.
func givenKey(values map[string]string) string {
	for key, v := range values {
		if v != "" {
			return key
		}
	}
	return ""
}

// placed puts file, line and key before an error about what a key names.
func placed(c *config.Config, key string, err error) error {
	return fmt.Errorf("%s: %s: %w", c.Place(key), key, err)
}
