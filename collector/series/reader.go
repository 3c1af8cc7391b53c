package series

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/inference"
	"gpuvigil/collector/scrape"
)

// reader makes a part of the samples of one page after the other, between begin and
// end. An error says that nothing can be made of the page.
type reader interface {
	begin(now time.Time)
	// sample takes one in; again says that the labels are those of the one before.
	sample(name []byte, labels []exposition.Label, v float64, again bool) error
	end(now time.Time) (*collector.Part, error)
}

func (a *Assembler) newReader(n *node, s *slot) reader {
	url := s.elected.url()
	switch s.kind {
	case ofNode:
		return nodeReader{scrape.NewNodeReader(a.vocab.exporters, url, a.cfg.Log)}
	case ofGPUs:
		return gpuReader{scrape.NewGPUReader(scrape.GPUReaderConfig{Names: a.vocab.exporters, URL: url, Interval: a.cfg.Lookback / 5, Describe: a.cfg.Describe, Log: a.cfg.Log})}
	case ofServer:
		return serverReader{inference.NewReader(a.vocab.servers, url), a, n, s}
	default:
		return newAgentReader(a.vocab.agents)
	}
}

// url is where the page is taken to be: the path is in no series.
func (p *target) url() string { return "http://" + p.key.instance + "/metrics" }

type nodeReader struct{ *scrape.NodeReader }

func (r nodeReader) begin(time.Time) { r.Begin() }

func (r nodeReader) sample(name []byte, labels []exposition.Label, v float64, _ bool) error {
	return r.Sample(name, labels, v)
}

func (r nodeReader) end(now time.Time) (*collector.Part, error) { return r.End(now, nil) }

type gpuReader struct{ *scrape.GPUReader }

func (r gpuReader) begin(now time.Time) { r.Begin(now) }

func (r gpuReader) sample(name []byte, labels []exposition.Label, v float64, again bool) error {
	if again {
		return r.Further(name, labels, v)
	}
	return r.Sample(name, labels, v)
}

func (r gpuReader) end(now time.Time) (*collector.Part, error) { return r.End(now, nil) }

// serverReader reads the page of an inference server.
type serverReader struct {
	*inference.Reader
	of   *Assembler
	node *node
	slot *slot
}

func (r serverReader) begin(time.Time) { r.Begin() }

func (r serverReader) sample(name []byte, labels []exposition.Label, v float64, _ bool) error {
	return r.Sample(name, labels, v)
}

func (r serverReader) end(now time.Time) (*collector.Part, error) {
	endpoints, target, err := r.End(now, r.gpus(), r.node.last)
	if err != nil {
		return nil, err
	}
	r.node.servers = nil // its list is another one now
	return &collector.Part{Time: now, Endpoints: endpoints, Targets: []collector.Target{target}}, nil
}

// gpus returns the GPUs that the server's pod was given, as the last snapshot has it.
func (r serverReader) gpus() []string {
	if r.node.last == nil || len(r.slot.elected.sets) == 0 {
		return nil
	}
	labels := r.slot.elected.sets[0]
	pod := collector.Owner{Kind: "pod", ID: labels.value("namespace") + "/" + labels.value("pod")}
	var uuids []string
	for i := range r.node.last.GPUs {
		for _, given := range r.node.last.GPUs[i].Allocations {
			if given.Owner.Kind == pod.Kind && given.Owner.ID == pod.ID {
				uuids = append(uuids, given.UUID)
				break
			}
		}
	}
	return uuids
}
