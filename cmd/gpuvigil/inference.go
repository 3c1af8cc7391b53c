package main

import (
	"time"

	"gpuvigil/collector/inference"
)

// inference returns the source of what the inference servers tell.
func (p *pipeline) inference() (*inference.Inference, error) {
	cfg := inference.Config{
		Timeout: time.Duration(p.cfg.Inference.Timeout), GPUs: p.latest, Log: p.log.With("component", "inference"),
	}
	for _, t := range p.cfg.Inference.Targets {
		a := address(t.Page)
		cfg.Targets = append(cfg.Targets, inference.Target{Name: t.Name, Engine: t.Engine, Model: t.Model, GPUs: t.GPUs,
			URL: a.URL, TLS: a.TLS, Token: a.Token, User: a.User, Password: a.Password})
	}
	if p.cfg.Inference.Discover && p.demo == nil {
		cfg.Sockets = &inference.Sockets{ProcFS: p.cfg.Host.ProcFS}
	}
	return inference.New(cfg)
}
