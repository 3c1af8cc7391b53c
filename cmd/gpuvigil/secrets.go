package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"gpuvigil/alerting"
	"gpuvigil/alerting/slack"
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
		Token: secret(s.TokenFile, s.TokenEnv), Channel: s.Channel, APIURL: s.APIURL, Log: log,
	})
}

// checkSecrets reads every secret that the configuration names once.
func checkSecrets(c *config.Config) error {
	var errs []error
	for _, s := range c.Alerting.Slack {
		if _, err := slackNotifier(s, slog.New(slog.DiscardHandler)); err != nil {
			errs = append(errs, fmt.Errorf("receiver %s: %w", s.Name, err))
		}
	}
	for i, t := range c.Inference.Targets {
		errs = append(errs, checkPageSecrets(fmt.Sprintf("inference.targets[%d]", i), t.Page))
	}
	errs = append(errs, checkPageSecrets("nvml.source", c.NVML.Source.Page), checkPageSecrets("host.source", c.Host.Source.Page))
	return errors.Join(errs...)
}

func checkPageSecrets(key string, p config.Page) error {
	var errs []error
	a := address(p)
	for what, read := range map[string]func() (string, error){"bearer token": a.Token, "password": a.Password} {
		if read == nil {
			continue
		}
		if _, err := read(); err != nil {
			errs = append(errs, fmt.Errorf("read the %s of %s: %w", what, key, err))
		}
	}
	return errors.Join(errs...)
}
