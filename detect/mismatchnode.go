package detect

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// lookAtNode judges the node's components.
func (d *Mismatch) lookAtNode(s *collector.Snapshot) {
	of := Subject{"node", s.Node.Name}
	if of.ID == "" {
		return
	}
	for i := range s.Node.Versions {
		v := &s.Node.Versions[i]
		for value := range strings.SplitSeq(v.Value, ",") {
			d.judge(s, of, collector.Owner{}, v.Component, strings.TrimSpace(value))
		}
	}
	module := versionOf(s, "kernel_module")
	if module == "" {
		module = versionOf(s, "driver")
	}
	d.lookAtLibrary(s, of, module)
	d.lookAtFabric(s, of, module)
}

// lookAtLibrary compares the library that programs which start now load with the module.
func (d *Mismatch) lookAtLibrary(s *collector.Snapshot, of Subject, module string) {
	library := versionOf(s, "driver_library")
	if library == "" {
		// NVML's own version is that of CUDA's, and the driver's that it came with.
		_, library, _ = strings.Cut(versionOf(s, "nvml"), ".")
	}
	if module == "" || library == "" || module == library {
		return
	}
	if c := d.find(s, of, moduleDiffers, module+" "+library); c != nil {
		c.wait, c.severity = reloadTakes, rules.Ticket
		c.told = Evidence{
			Title:    "Driver installed but not loaded",
			Seen:     fmt.Sprintf("the kernel module is %s, the driver's library %s, for %s", module, library, span(s.Time.Sub(c.Since))),
			Expected: "the same version: programs that start now fail with a driver/library version mismatch", Observed: 2,
			Confidence: Certain, Why: "the kernel tells of the module, the library's name of itself",
			Action: "Drain the node and reload the driver's modules, or boot it; until then no new program can use its GPUs.",
		}
	}
}

// lookAtFabric compares the fabric manager that is installed with the driver, on a node
// whose GPUs have a fabric: elsewhere it does nothing, whatever its version.
func (d *Mismatch) lookAtFabric(s *collector.Snapshot, of Subject, module string) {
	manager := versionOf(s, "fabric_manager")
	if order, ok := rules.CompareVersions(manager, module); !ok || order == 0 || !hasFabric(s) {
		return
	}
	if c := d.find(s, of, fabricDiffers, module+" "+manager); c != nil {
		c.wait, c.severity = reloadTakes, rules.Ticket
		c.told = Evidence{
			Title:    "Fabric manager and driver of different versions",
			Seen:     fmt.Sprintf("the fabric manager is %s, the driver %s, for %s", manager, module, span(s.Time.Sub(c.Since))),
			Expected: "the same version: another one does not start the NVSwitches, and programs fail with \"system not yet initialized\"", Observed: 2,
			Confidence: Certain, Why: "the package manager tells of the one, the kernel of the other",
			Action: "Install the fabric manager of the driver's version and restart nvidia-fabricmanager before the node is booted or its GPUs are reset.",
		}
	}
}

// hasFabric reports whether the GPUs are joined by NVSwitches, as far as anything tells:
// they have a state in the fabric, or a switch has had an error.
func hasFabric(s *collector.Snapshot) bool {
	return len(s.SXids) > 0 || slices.ContainsFunc(s.GPUs, func(g collector.GPU) bool { return g.Value(metric.FabricState) > 0 })
}

func versionOf(s *collector.Snapshot, component string) string {
	for i := range s.Node.Versions {
		if s.Node.Versions[i].Component == component {
			return s.Node.Versions[i].Value
		}
	}
	return ""
}

// judge holds one version against what is known to be bad and what is approved. What
// has no version that could be compared is not judged.
func (d *Mismatch) judge(s *collector.Snapshot, subject Subject, owner collector.Owner, component, version string) {
	if version == "" || version == unknownVersion {
		return
	}
	if b := rules.KnownBad(component, version, d.models); b != nil {
		d.bad(s, subject, owner, knownBad, b.Severity, fmt.Sprintf("%s %s: %s", component, version, b.Why), "said by "+b.Source,
			fmt.Sprintf("Upgrade %s to %s or later.", component, b.Before))
	}
	for i := range d.cfg.KnownBad {
		if b := &d.cfg.KnownBad[i]; b.Component == component && matches(b.Versions, version) {
			d.bad(s, subject, owner, knownBad, rules.Ticket, fmt.Sprintf("%s %s: %s", component, version, b.Why), "the configuration calls it bad", "")
		}
	}
	if globs := d.cfg.Approved[component]; len(globs) > 0 && !matches(globs, version) {
		d.bad(s, subject, owner, notApproved, rules.Ticket, fmt.Sprintf("%s %s (approved: %s)", component, version, strings.Join(globs, ", ")),
			"the configuration lists what is approved", "")
	}
}

// unknownVersion stands for one of a library that is loaded and does not tell.
const unknownVersion = "unknown"

func matches(globs []string, version string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, version)
		return ok && err == nil // the configuration has refused globs that are none
	})
}

// lookAtGPUs compares the firmware of the GPUs of one model and board.
func (d *Mismatch) lookAtGPUs(s *collector.Snapshot) {
	for i := range s.GPUs {
		if s.GPUs[i].Present && firstOfBoard(s.GPUs, i) {
			d.compareBoards(s, s.GPUs[i:])
		}
	}
}

// firstOfBoard reports whether no GPU before the i-th is on the same board.
func firstOfBoard(gpus []collector.GPU, i int) bool {
	for j := range i {
		if gpus[j].Present && sameBoard(&gpus[j], &gpus[i]) {
			return false
		}
	}
	return true
}

func sameBoard(a, b *collector.GPU) bool { return a.Model == b.Model && a.BoardPart == b.BoardPart }

// firmwareParts are the parts of a GPU with a version of their own.
var firmwareParts = []struct {
	part string
	of   func(g *collector.GPU) string
}{
	{"vbios", func(g *collector.GPU) string { return g.VBIOS }},
	{"gsp", func(g *collector.GPU) string { return g.GSP }},
	{"inforom", func(g *collector.GPU) string { return g.InfoROM }},
}

// compareBoards compares the firmware of the GPUs that are on the first one's board.
func (d *Mismatch) compareBoards(s *collector.Snapshot, gpus []collector.GPU) {
	for _, f := range firmwareParts {
		var values []string
		var have [][]int
		for i := range gpus {
			g := &gpus[i]
			value := f.of(g)
			if !g.Present || value == "" || !sameBoard(g, &gpus[0]) {
				continue
			}
			n := slices.Index(values, value)
			if n < 0 {
				n = len(values)
				values, have = append(values, value), append(have, nil)
			}
			have[n] = append(have[n], g.Index)
		}
		if len(values) > 1 {
			d.firmwareDiffers(s, f.part, gpus[0].Model, values, have)
		}
	}
}

func (d *Mismatch) firmwareDiffers(s *collector.Snapshot, part, model string, values []string, have [][]int) {
	c := d.find(s, Subject{"node", s.Node.Name}, gpusDiffer, "")
	if c == nil {
		return
	}
	most, total := 0, 0
	for i := range values {
		total += len(have[i])
		if len(have[i]) > len(have[most]) {
			most = i
		}
	}
	for i, value := range values {
		if i != most {
			c.lines = append(c.lines, fmt.Sprintf("%s with %s %s, %d of %d %s have %s", gpuList(have[i]), part, value, len(have[most]), total, model, values[most]))
		}
	}
	want := 1.0
	c.told = Evidence{
		Title: "GPUs of one board with different firmware", Seen: listed(c.lines), Expected: "one version on all GPUs of a model and board",
		Observed: float64(len(values)), Want: &want, Confidence: Certain, Why: "reported by each GPU",
		Action: "Nothing, unless the vendor asks for one version: take it in with the next maintenance.",
	}
}

// gpuList writes "GPU 3" or "GPUs 3, 5".
func gpuList(indices []int) string {
	word := "GPU "
	if len(indices) > 1 {
		word = "GPUs "
	}
	return word + strings.Trim(strings.ReplaceAll(fmt.Sprint(indices), " ", ", "), "[]")
}

// listed joins the first lines of many.
func listed(lines []string) string {
	more := ""
	if extra := len(lines) - mostLines; extra > 0 {
		lines, more = lines[:mostLines], fmt.Sprintf("; and %d more", extra)
	}
	return strings.Join(lines, "; ") + more
}
