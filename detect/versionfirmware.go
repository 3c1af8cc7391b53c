package detect

import (
	"gpuvigil/collector"
)

// firmware is a part of a GPU with a version of its own.
type firmware struct{ part, uuid string }

// ofGPUs reports whether a component of the node is firmware that each GPU tells of
// itself.
func ofGPUs(s *collector.Snapshot, component string) bool {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		switch component {
		case "vbios":
			return g.VBIOS != ""
		case "gsp":
			return g.GSP != ""
		case "inforom":
			return g.InfoROM != ""
		}
	}
	return false
}

func (d *Version) compareFirmware(s *collector.Snapshot, g *collector.GPU, part, value string) bool {
	if value == "" || g.UUID == "" {
		return false
	}
	key := firmware{part, g.UUID}
	name, ok := d.firmware[key]
	if !ok {
		if name = part + "/" + g.UUID; len(d.firmware) < mostComponents {
			d.firmware[key] = name
		}
	}
	return d.compare(s, name, value, gpuSubject(g.UUID), part, g)
}
