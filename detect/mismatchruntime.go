package detect

import (
	"fmt"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// subjectOfOwner is an owner as the subject of a finding; what is unattributed is the
// node's.
func subjectOfOwner(s *collector.Snapshot, o collector.Owner) Subject {
	if o.Kind == "" {
		return Subject{"node", s.Node.Name}
	}
	return Subject{o.Kind, o.ID}
}

// ownerWords names an owner in a text that may go to a chat channel, which names no
// user.
func ownerWords(o collector.Owner) string {
	switch o.Kind {
	case "":
		return "an unattributed process"
	case "user":
		return "a user of the node"
	}
	return o.Kind + " " + o.ID
}

// lookAtRuntimes judges what processes have loaded.
func (d *Mismatch) lookAtRuntimes(s *collector.Snapshot, inv *collector.Inventory) {
	driver := versionOf(s, "driver")
	if driver == "" {
		driver = versionOf(s, "kernel_module")
	}
	for i := range inv.Runtimes {
		r := &inv.Runtimes[i]
		subject := subjectOfOwner(s, r.Owner)
		if subject.ID == "" {
			continue
		}
		d.judge(s, subject, r.Owner, r.Component, r.Version)
		if r.Component == "cuda_runtime" && driver != "" {
			d.judgeRuntime(s, subject, inv, r, driver)
		}
	}
}

// judgeRuntime compares a CUDA runtime with the driver. Within a major version of CUDA
// every driver of it will do; beyond it takes the libcuda of a newer driver in the
// process, NVIDIA's forward compatibility.
func (d *Mismatch) judgeRuntime(s *collector.Snapshot, subject Subject, inv *collector.Inventory, r *collector.Runtime, driver string) {
	needs, ok := rules.Major(r.Version)
	has := rules.CUDAOfDriver(driver)
	if cuda, known := rules.Major(versionOf(s, "cuda")); known {
		has = max(has, cuda) // a driver that is newer than the table says itself what it can
	}
	if !ok || has == 0 || needs <= has {
		return
	}
	for i := range inv.Runtimes {
		o := &inv.Runtimes[i]
		if o.Owner != r.Owner || o.Component != "libcuda" {
			continue
		}
		if o.Version == unknownVersion || rules.CUDAOfDriver(o.Version) >= needs {
			return // or it may be
		}
		if order, known := rules.CompareVersions(o.Version, driver); known && order > 0 && rules.DriverOfCUDA(needs) == "" {
			return // newer than this table
		}
	}
	c := d.find(s, subject, runtimeNewer, "")
	if c == nil {
		return
	}
	c.owner, c.severity, c.Software = r.Owner, rules.Ticket, true
	c.lines = append(c.lines, fmt.Sprintf("%s has loaded CUDA runtime %s", ownerWords(r.Owner), r.Version))
	expected := fmt.Sprintf("a driver for CUDA %d", needs)
	if first := rules.DriverOfCUDA(needs); first != "" {
		expected = fmt.Sprintf("driver %s or later for CUDA %d, or the libcuda of one in the container (cuda-compat)", first, needs)
	}
	want := float64(has)
	c.told = Evidence{
		Title: "CUDA runtime newer than the driver", Seen: fmt.Sprintf("%s on driver %s, which runs CUDA %d", listed(c.lines), driver, has),
		Expected: expected, Observed: float64(needs), Want: &want,
		Confidence: Likely, Why: "the library is loaded; that it is used was not seen",
		Action: "Use an image for the CUDA version of the driver, or upgrade the driver.",
	}
}
