package movement

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

// facts makes the readings of one owner.
type facts struct {
	*scene
	*owned
	tally    *tally
	readings collector.Readings
	caveats  map[collector.Caveat]bool
}

func (f *facts) caveat(fact, reason string) {
	if reason != reasonGone {
		f.caveats[collector.Caveat{Fact: fact, Reason: reason}] = true
	}
}

func (f *facts) sortedCaveats() []collector.Caveat {
	var out []collector.Caveat
	for c := range f.caveats {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b collector.Caveat) int {
		return cmp.Or(cmp.Compare(a.Fact, b.Fact), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// groups tells what the owner's control groups count.
func (f *facts) groups() {
	f.eachGroup("block", blockController, f.block)
	f.eachGroup("cpu", usageController, f.usage)
	f.eachGroup("memory", memoryController, f.memory)
	f.limits()
	if !f.tally.told[column{metric.WorkloadBlockBytes, 0}] {
		f.processIO()
	}
}

// eachGroup calls read for each of the owner's own directories.
func (f *facts) eachGroup(fact, controller string, read func(dir, of string) (reason string)) {
	dirs, caveat := f.ownGroups(f.owned, controller)
	if caveat != "" {
		f.caveat(fact, caveat)
	}
	for _, dir := range dirs {
		if reason := read(dir, counterOf(dir, f.groupInode(dir), "")); reason != "" {
			f.caveat(fact, reason)
		}
	}
}

// block has a counter for each device, so that one which is unplugged is no restart.
func (f *facts) block(dir, of string) (reason string) {
	add := func(device string, at int, v uint64) {
		f.tally.add(metric.WorkloadBlockBytes, at, path.Join(of, device), v)
	}
	if f.cgroups.unified {
		reason = f.groupRead(dir, "io.stat", func(line string) error { return parseIOStat(line, add) })
	} else {
		reason = f.groupRead(dir, "blkio.throttle.io_service_bytes_recursive", func(line string) error { return parseServiceBytes(line, add) })
	}
	// A group that has moved nothing yet has no line; of one that was not read to its
	// end nothing is told.
	f.tally.tell(metric.WorkloadBlockBytes, reason == "")
	return reason
}

// parseIOStat reads a line of io.stat. One may hold a device and nothing else.
func parseIOStat(line string, add func(device string, at int, v uint64)) error {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return nil
	}
	for _, field := range fields[1:] {
		name, number, _ := strings.Cut(field, "=")
		at := slices.Index([]string{"rbytes", "wbytes"}, name)
		if at < 0 {
			continue
		}
		v, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return errMalformed
		}
		add(fields[0], at, v)
	}
	return nil
}

// parseServiceBytes reads a line of blkio.throttle.io_service_bytes_recursive:
// "8:0 Read 123".
func parseServiceBytes(line string, add func(device string, at int, v uint64)) error {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return nil // the total of all devices
	}
	at := slices.Index([]string{"Read", "Write"}, fields[1])
	if at < 0 {
		return nil
	}
	v, err := strconv.ParseUint(fields[2], 10, 64)
	if err != nil {
		return errMalformed
	}
	add(fields[0], at, v)
	return nil
}

const nano, micro = 1, 1000 // in nanoseconds

func (f *facts) usage(dir, of string) (reason string) {
	if f.cgroups.unified {
		return f.groupRead(dir, "cpu.stat", keyed(func(name string, v uint64) {
			if name == "usage_usec" {
				f.tally.add(metric.WorkloadCPUSeconds, 0, of, v*micro)
			}
		}))
	}
	return f.groupRead(dir, "cpuacct.usage", func(line string) error {
		v, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return errMalformed
		}
		f.tally.add(metric.WorkloadCPUSeconds, 0, of, v*nano)
		return nil
	})
}

// memory adds anon and shmem of the owner's groups up.
func (f *facts) memory(dir, of string) (reason string) {
	names := []string{"anon", "shmem"}
	if !f.cgroups.unified {
		names = []string{"total_rss", "total_shmem"}
	}
	reason = f.groupRead(dir, "memory.stat", keyed(func(name string, v uint64) {
		if at := slices.Index(names, name); at >= 0 {
			f.addMemory(at, float64(v))
		}
	}))
	if f.cgroups.unified {
		f.groupRead(dir, "memory.events", keyed(func(name string, v uint64) {
			if name == "oom_kill" {
				f.tally.add(metric.WorkloadOOMKills, 0, of, v)
			}
		}))
		for i, resource := range metric.PSIOfCgroup.Values {
			f.groupRead(dir, resource+".pressure", func(line string) error { return f.pressure(line, i, of) })
		}
	}
	return reason
}

func (f *facts) addMemory(at int, v float64) {
	if before := f.readings.ValueAt(metric.WorkloadMemory, at); before > 0 {
		v += before
	}
	f.readings.SetAt(metric.WorkloadMemory, at, v)
}

func (f *facts) pressure(line string, at int, of string) error {
	some, found := strings.CutPrefix(line, "some ")
	_, total, ok := strings.Cut(some, "total=")
	if !found || !ok {
		return nil
	}
	v, err := strconv.ParseUint(strings.TrimSpace(total), 10, 64)
	if err != nil {
		return errMalformed
	}
	f.tally.add(metric.WorkloadPressure, at, of, v)
	return nil
}

// limits reads quotas and limits on the way from the owner's directory down to its
// processes': the kernel counts throttling where the quota is, and a pod's is mostly
// its container's.
func (f *facts) limits() {
	if dirs, _ := f.ownGroups(f.owned, quotaController); len(dirs) > 0 {
		for _, dir := range leaves(f.owned.groups[quotaController]) {
			f.throttling(dir, counterOf(dir, f.groupInode(dir), ""))
			f.quota(dir)
		}
	}
	if dirs, _ := f.ownGroups(f.owned, memoryController); len(dirs) > 0 {
		file := "memory.max"
		if !f.cgroups.unified {
			file = "memory.limit_in_bytes"
		}
		for _, dir := range leaves(f.owned.groups[memoryController]) {
			f.groupRead(dir, file, func(line string) error {
				if v, limited, err := parseLimit(line); err != nil {
					return err
				} else if limited && v < unlimitedMemory {
					f.tighten(metric.WorkloadMemoryLimit, float64(v))
				}
				return nil
			})
		}
	}
}

// unlimitedMemory is where cgroup v1 begins to mean "no limit": the largest number of
// whole pages, whatever their size.
const unlimitedMemory = 1 << 62

func (f *facts) throttling(dir, of string) {
	f.groupRead(dir, "cpu.stat", keyed(func(name string, v uint64) {
		switch name {
		case "throttled_usec":
			f.tally.add(metric.WorkloadCPUThrottled, 0, of, v*micro)
		case "throttled_time":
			f.tally.add(metric.WorkloadCPUThrottled, 0, of, v*nano)
		}
	}))
}

func (f *facts) quota(dir string) {
	set := func(quota, period string) error {
		q, limited, err := parseLimit(quota)
		p, _, periodErr := parseLimit(period)
		if err != nil || periodErr != nil || limited && p == 0 {
			return errMalformed
		}
		if limited {
			f.tighten(metric.WorkloadCPULimit, float64(q)/float64(p))
		}
		return nil
	}
	if f.cgroups.unified {
		f.groupRead(dir, "cpu.max", func(line string) error {
			quota, period, _ := strings.Cut(strings.TrimSpace(line), " ")
			return set(quota, period)
		})
		return
	}
	f.groupRead(dir, "cpu.cfs_quota_us", func(quota string) error {
		f.groupRead(dir, "cpu.cfs_period_us", func(period string) error { return set(quota, period) })
		return nil
	})
}

// parseLimit reads a number, or what stands for none: "max", and -1 in cgroup v1.
func parseLimit(s string) (v uint64, limited bool, err error) {
	switch s = strings.TrimSpace(s); s {
	case "max", "-1":
		return 0, false, nil
	}
	if v, err = strconv.ParseUint(s, 10, 64); err != nil {
		return 0, false, errMalformed
	}
	return v, true, nil
}

// tighten keeps the smaller limit.
func (f *facts) tighten(d *metric.Def, v float64) {
	if before := f.readings.Value(d); !(before <= v) && d.Plausible(v) {
		f.readings.Set(d, v)
	}
}

// processIO adds up what the owner's GPU processes moved themselves, where no control
// group tells it and this user may read it.
func (f *facts) processIO() {
	if !f.cfg.Privileged {
		return
	}
	f.tally.untell(metric.WorkloadBlockBytes)
	for _, p := range f.processes {
		dir, err := proc.Open(f.cfg.ProcFS, p.pid, p.start)
		if err != nil {
			f.caveat("block", failed("stat", err))
			continue
		}
		of := "io/" + strconv.Itoa(p.pid) + "/" + strconv.FormatUint(p.start, 10)
		_, err = read(dir, "io", smallFile, keyed(func(name string, v uint64) {
			if at := slices.Index([]string{"read_bytes", "write_bytes"}, name); at >= 0 {
				f.tally.add(metric.WorkloadBlockBytes, at, of, v)
			}
		}))
		dir.Close()
		if err != nil {
			f.caveat("block", failed("io", err))
			continue
		}
		f.caveat("block", "processes_only")
	}
}
