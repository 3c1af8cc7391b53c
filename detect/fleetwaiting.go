package detect

import (
	"cmp"
	"fmt"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// fleetWaiting is rule waiting_jobs with what the nodes say beside the schedulers: how many
// of the GPUs that are taken are held idle.
type fleetWaiting struct{ *WaitingJobs }

// heldIdle are the GPUs of a cluster that somebody holds and does not use. The zero value
// is that nobody does, or that nothing is known of it.
type heldIdle struct {
	gpus, all int
	most      collector.Owner // who holds most of them
	ofMost    int
}

// look counts the GPUs that their nodes say to be held idle.
func (d *fleetWaiting) look(_ time.Time, heard []Heard) {
	d.idle = heldIdle{}
	by := map[collector.Owner]int{}
	for i := range heard {
		h := &heard[i]
		if h.Snapshot == nil {
			continue
		}
		d.idle.all += len(h.Snapshot.GPUs)
		for k := range h.Findings {
			f := &h.Findings[k]
			if f.Rule != rules.IDIdleGPU || f.State != Firing || f.Subject.Kind != "gpu" {
				continue
			}
			d.idle.gpus++
			who := f.Owner
			if g := h.Snapshot.GPUByUUID(f.Subject.ID); who.Kind == "" && g != nil {
				who = holder(g)
			}
			if who.Kind != "" {
				by[who]++
			}
		}
	}
	for who, n := range by {
		if n > d.idle.ofMost || n == d.idle.ofMost && cmp.Less(who.String(), d.idle.most.String()) {
			d.idle.most, d.idle.ofMost = who, n
		}
	}
}

// words say what is held idle; empty if nothing is.
func (h *heldIdle) words() string {
	if h.gpus == 0 {
		return ""
	}
	said := fmt.Sprintf("%d of the cluster's %d GPUs are held idle", h.gpus, h.all)
	if h.ofMost > 0 {
		said += fmt.Sprintf(", %d of them by %s", h.ofMost, ownerWords(h.most))
	}
	return said
}
