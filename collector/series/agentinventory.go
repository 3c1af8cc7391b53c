package series

import (
	"gpuvigil/collector"
)

func (r *agentReader) runtime(at identity, _ float64) {
	if i := &r.inventory; len(i.Runtimes) < maxThings {
		i.Runtimes = append(i.Runtimes, collector.Runtime{Owner: at.owner(), Component: at.text("component"), Version: at.text("version")})
	}
}

func (r *agentReader) image(at identity, _ float64) {
	if i := &r.inventory; len(i.Images) < maxThings {
		i.Images = append(i.Images, collector.Image{Owner: at.owner(), Container: at.text("container"), Name: at.text("image"), Digest: at.text("digest")})
	}
}

func (r *agentReader) dataset(at identity, _ float64) {
	if i := &r.inventory; len(i.Datasets) < maxThings {
		i.Datasets = append(i.Datasets, collector.Dataset{Owner: at.owner(), Kind: at.text("kind"), Source: at.text("source"), Mount: at.text("mount")})
	}
}

func (r *agentReader) api(at identity, _ float64) {
	if i := &r.inventory; len(i.APIs) < maxThings {
		i.APIs = append(i.APIs, collector.API{Owner: at.owner(), Port: at.number("port"), Scope: at.text("scope"),
			TLS: truth(at.text("tls")), Engine: at.text("engine"), Model: at.text("model"), Approved: truth(at.text("approved"))})
	}
}

// truth reads an answer back that may be unknown.
func truth(s string) *bool {
	switch s {
	case "true", "false":
		is := s == "true"
		return &is
	}
	return nil
}
