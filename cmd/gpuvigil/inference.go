package main

import (
	"log/slog"
	"time"

	"gpuvigil/collector/inference"
	"gpuvigil/internal/config"
)

// inference returns the source of what the inference servers tell.
func (p *pipeline) inference() (*inference.Inference, error) {
	cfg := inferenceConfig(p.cfg, p.log)
	cfg.GPUs = p.latest
	if p.cfg.Inference.Discover && p.demo == nil {
		cfg.Sockets = &inference.Sockets{ProcFS: p.cfg.Host.ProcFS}
	}
	return inference.New(cfg)
}

// inferenceConfig has the targets of the configuration.
func inferenceConfig(c *config.Config, log *slog.Logger) inference.Config {
	cfg := inference.Config{Timeout: time.Duration(c.Inference.Timeout), Log: log.With("component", "inference")}
	for _, t := range c.Inference.Targets {
		a := address(t.Page)
		cfg.Targets = append(cfg.Targets, inference.Target{Name: t.Name, Engine: t.Engine, Model: t.Model, GPUs: t.GPUs,
			URL: a.URL, TLS: a.TLS, Token: a.Token, User: a.User, Password: a.Password})
	}
	return cfg
}
