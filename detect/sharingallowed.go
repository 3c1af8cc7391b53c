package detect

import (
	"path"
	"slices"

	"gpuvigil/collector"
)

// tools may be on a GPU beside anybody's work: services of the driver and of the desktop,
// profilers, and this program. Names are cut to 15 letters by the kernel.
var tools = []string{
	"nvidia-*", "nv-hostengine", "nv-fabricmanage*", "dcgm*", "dcgmproftester*", "Xorg*", "X", "Xwayland", "gnome-*", "gdm*", "sddm*", "kwin*", "plasma*",
	"nsys*", "nsight*", "ncu*", "nv-nsight-cu*", "cuda-gdb*", "compute-sanitiz*", "cudbgprocess", "gpuvigil*", "nvtop", "gpustat*",
}

// allowed reports whether a process may be on anybody's GPU.
func (d *Sharing) allowed(p *collector.Process) bool {
	is := func(glob string) bool {
		ok, err := path.Match(glob, p.Name)
		return ok && err == nil // the configuration has refused globs that are none
	}
	return p.Owner == (collector.Owner{}) || p.Service() || slices.ContainsFunc(tools, is) || slices.ContainsFunc(d.cfg.Allowed, is)
}
