package owner

import (
	"regexp"

	"gpuvigil/collector"
)

// device is what a device id of the kubelet says, which takes many forms: each device
// plugin makes its own.
type device struct {
	uuid   string // of the GPU
	mig    string // uuid of a MIG instance
	minor  int    // of the device file, -1 if the id holds none: not the index of NVML
	gi, ci int    // of a MIG instance, -1 if the id holds none
	shared bool   // it is one of several shares
}

var (
	// A share of NVIDIA's plugin ends in ::N, one of HAMi's in -N.
	gpuID = regexp.MustCompile(`^(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(::[0-9]*|-[0-9]+)?$`)
	migID = regexp.MustCompile(`^(MIG-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(::[0-9]*|-[0-9]+)?$`)
	// Before R470 an instance was named by its GPU and numbers.
	oldMIGID = regexp.MustCompile(`^MIG-(GPU-[0-9a-f-]{36})/([0-9]{1,3})/([0-9]{1,3})(::[0-9]*)?$`)
	gkeID    = regexp.MustCompile(`^nvidia([0-9]{1,4})(?:/gi([0-9]{1,3}))?(/vgpu[0-9]+)?$`)
)

// parseDevice reads a device id; ok is false for what is no GPU of NVIDIA's. A name
// like nvidia0 is one only of a resource of NVIDIA's.
func parseDevice(id string, nvidia bool) (d device, ok bool) {
	d = device{minor: -1, gi: -1, ci: -1}
	if m := gpuID.FindStringSubmatch(id); m != nil {
		d.uuid, d.shared = m[1], m[2] != ""
		return d, true
	}
	if m := migID.FindStringSubmatch(id); m != nil {
		d.mig, d.shared = m[1], m[2] != ""
		return d, true
	}
	if m := oldMIGID.FindStringSubmatch(id); m != nil {
		d.uuid, d.gi, d.ci, d.shared = m[1], number(m[2]), number(m[3]), m[4] != ""
		return d, true
	}
	if m := gkeID.FindStringSubmatch(id); m != nil && nvidia {
		d.minor, d.shared = number(m[1]), m[3] != ""
		if m[2] != "" {
			d.gi = number(m[2])
		}
		return d, true
	}
	return d, false
}

// spot is a GPU or a MIG instance of the snapshot.
type spot struct{ uuid, mig string }

// board finds the GPUs of a snapshot by whatever they are called.
type board struct {
	uuids     map[string]bool
	byIndex   map[int]string
	byMinor   map[int]string
	instances []collector.Instance
}

func newBoard(s *collector.Snapshot, minors map[int]string) board {
	b := board{uuids: map[string]bool{}, byIndex: map[int]string{}, byMinor: minors}
	if s == nil {
		return b
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		b.uuids[g.UUID] = true
		b.byIndex[g.Index] = g.UUID
	}
	b.instances = s.Instances
	return b
}

// spots returns what the device is here; none if the node has no such GPU. An id that
// names a GPU instance but no compute instance is all that are in it.
func (b board) spots(d device) []spot {
	if d.mig != "" {
		for i := range b.instances {
			if b.instances[i].MIGUUID == d.mig {
				return []spot{{b.instances[i].UUID, b.instances[i].MIG()}}
			}
		}
		return nil
	}
	uuid := d.uuid
	if d.minor >= 0 {
		uuid = b.byMinor[d.minor]
	}
	if !b.uuids[uuid] {
		return nil
	}
	if d.gi < 0 {
		return []spot{{uuid, ""}}
	}
	return b.inInstance(uuid, d.gi, d.ci)
}

func (b board) inInstance(uuid string, gi, ci int) []spot {
	var out []spot
	for i := range b.instances {
		m := &b.instances[i]
		if m.UUID == uuid && m.GI == gi && (ci < 0 || m.CI == ci) {
			out = append(out, spot{uuid, m.MIG()})
		}
	}
	return out
}
