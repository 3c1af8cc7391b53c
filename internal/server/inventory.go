package server

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// The bounds of the series of what runs on the node.
const (
	maxRuntimes = 96
	maxImages   = 32
	maxDatasets = 48
	maxAPIs     = 32
)

var (
	cappedRuntimes = vm.GetOrCreateCounter(metric.SeriesCapped.Series("runtime"))
	cappedImages   = vm.GetOrCreateCounter(metric.SeriesCapped.Series("image"))
	cappedDatasets = vm.GetOrCreateCounter(metric.SeriesCapped.Series("dataset"))
	cappedAPIs     = vm.GetOrCreateCounter(metric.SeriesCapped.Series("api"))
)

// Inventory is the answer of GET /api/v1/inventory: what runs on the node.
type Inventory struct {
	Time      time.Time           `json:"time"`
	Node      string              `json:"node"`
	Simulated bool                `json:"simulated"`
	Versions  []collector.Version `json:"versions"` // of the node's components
	GPUs      []InventoryGPU      `json:"gpus"`
	Workloads []InventoryWorkload `json:"workloads"` // whose GPUs these are

	At       time.Time           `json:"at,omitzero"` // when the processes were looked at last
	Runtimes []collector.Runtime `json:"runtimes"`
	Images   []collector.Image   `json:"images"`
	Datasets []collector.Dataset `json:"datasets"`
	APIs     []collector.API     `json:"apis"`
	Unread   []collector.Unread  `json:"unread"` // processes of which not all could be read
	Absent   []string            `json:"absent"` // what cannot be told here, and why

	Changes []collector.Event `json:"changes"` // the last ones, oldest first
}

// InventoryGPU is what is known of a GPU as a thing.
type InventoryGPU struct {
	Index  int    `json:"index"`
	UUID   string `json:"uuid"`
	Model  string `json:"model"`
	Serial string `json:"serial,omitempty"`
	VBIOS  string `json:"vbios,omitempty"`
	MIG    bool   `json:"mig"`
}

// InventoryWorkload is an owner with what the configuration says of it.
type InventoryWorkload struct {
	collector.Owner
	Stage      string   `json:"stage,omitempty"`
	Containers []string `json:"containers,omitempty"`
}

func (s *Server) apiInventory(w http.ResponseWriter, _ *http.Request) {
	snap := s.cfg.Snapshot()
	if snap == nil {
		http.Error(w, "no snapshot yet: the first samples are being taken", http.StatusServiceUnavailable)
		return
	}
	answer := inventoryOf(snap)
	if s.cfg.Changes != nil {
		answer.Changes = orEmpty(s.cfg.Changes())
	}
	s.reply(w, answer)
}

func inventoryOf(s *collector.Snapshot) Inventory {
	var i collector.Inventory
	if s.Inventory != nil {
		i = *s.Inventory
	}
	return Inventory{
		Time: s.Time, Node: s.Node.Name, Simulated: s.Simulated, Versions: orEmpty(s.Node.Versions),
		GPUs: each(s.GPUs, func(g collector.GPU) InventoryGPU {
			return InventoryGPU{g.Index, g.UUID, g.Model, g.Serial, g.VBIOS, g.MIG}
		}),
		Workloads: each(s.Workloads, func(w collector.Workload) InventoryWorkload {
			return InventoryWorkload{w.Owner, w.Stage, w.Containers}
		}),
		At: i.At, Runtimes: orEmpty(i.Runtimes), Images: orEmpty(i.Images), Datasets: orEmpty(i.Datasets), APIs: orEmpty(i.APIs),
		Unread: orEmpty(i.Unread), Absent: orEmpty(i.Absent), Changes: []collector.Event{},
	}
}

// inventory has a series for each thing that runs on the node, up to the limits.
func (e *exposition) inventory(s *collector.Snapshot) {
	i := s.Inventory
	if i == nil {
		return
	}
	for _, r := range upTo(i.Runtimes, maxRuntimes, cappedRuntimes) {
		kind, id, team := e.ownerLabels(r.Owner)
		e.one(metric.RuntimeInfo, 1, kind, id, team, r.Component, r.Version)
	}
	for _, m := range upTo(i.Images, maxImages, cappedImages) {
		kind, id, team := e.ownerLabels(m.Owner)
		e.one(metric.ImageInfo, 1, kind, id, team, m.Container, m.Name, m.Digest)
	}
	for _, d := range upTo(i.Datasets, maxDatasets, cappedDatasets) {
		kind, id, team := e.ownerLabels(d.Owner)
		e.one(metric.DatasetInfo, 1, kind, id, team, d.Kind, d.Source, d.Mount)
	}
	for _, a := range upTo(i.APIs, maxAPIs, cappedAPIs) {
		kind, id, team := e.ownerLabels(a.Owner)
		e.one(metric.InferenceAPIInfo, 1, kind, id, team,
			strconv.Itoa(a.Port), a.Scope, truth(a.TLS), a.Engine, a.Model, truth(a.Approved))
	}
}

// upTo returns the first of the list; what is left out is counted.
func upTo[T any](list []T, most int, capped *vm.Counter) []T {
	if extra := len(list) - most; extra > 0 {
		capped.Add(extra)
		return slices.Clip(list[:most])
	}
	return list
}

// truth is an answer as a label's value, empty if it is unknown.
func truth(b *bool) string {
	if b == nil {
		return ""
	}
	return strconv.FormatBool(*b)
}
