package main

import (
	"time"

	"gpuvigil/collector/inference"
	"gpuvigil/collector/page"
)

// inference returns the source of what the inference servers tell.
func (p *pipeline) inference() (*inference.Inference, error) {
	cfg := inference.Config{
		Timeout: time.Duration(p.cfg.Inference.Timeout), GPUs: p.latest, Log: p.log.With("component", "inference"),
	}
	for _, t := range p.cfg.Inference.Targets {
		target := inference.Target{URL: t.URL, Engine: t.Engine, Model: t.Model, GPUs: t.GPUs, User: t.Username,
			TLS: page.TLS{CAFile: t.TLS.CAFile, ServerName: t.TLS.ServerName, Insecure: t.TLS.Insecure}}
		if t.BearerTokenFile != "" || t.BearerTokenEnv != "" {
			target.Token = secret(t.BearerTokenFile, t.BearerTokenEnv)
		}
		if t.PasswordFile != "" || t.PasswordEnv != "" {
			target.Password = secret(t.PasswordFile, t.PasswordEnv)
		}
		cfg.Targets = append(cfg.Targets, target)
	}
	if p.cfg.Inference.Discover && p.demo == nil {
		cfg.Sockets = &inference.Sockets{ProcFS: p.cfg.Host.ProcFS}
	}
	return inference.New(cfg)
}
