package scrape

import (
	"math"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// fact is one column of the catalogue under another exporter's name, times scale; 0
// means 1.
type fact struct {
	row   *metric.Def
	at    int
	scale float64
}

func (f fact) reading(v float64) float64 {
	if f.scale == 0 {
		return v
	}
	return v * f.scale
}

// smiPrefix is before all names of nvidia_gpu_exporter.
const smiPrefix = "nvidia_smi_"

// smiFacts are the facts of a GPU that nvidia_gpu_exporter tells, in base units.
func smiFacts() map[string]fact {
	facts := map[string]fact{
		"utilization_gpu_ratio": {row: metric.Utilization}, "utilization_memory_ratio": {row: metric.MemoryUtilization},
		"utilization_encoder_ratio": {row: metric.EncoderUtilization}, "utilization_decoder_ratio": {row: metric.DecoderUtilization},
		"utilization_jpeg_ratio": {row: metric.JPEGUtilization}, "utilization_ofa_ratio": {row: metric.OFAUtilization},
		"encoder_stats_session_count": {row: metric.EncoderSessions}, "encoder_stats_average_fps": {row: metric.EncoderFrames},

		"memory_total_bytes": {row: metric.MemoryCapacity}, "memory_used_bytes": {row: metric.MemoryUsed},
		"memory_free_bytes": {row: metric.MemoryFree}, "memory_reserved_bytes": {row: metric.MemoryReserved},
		"protected_memory_total_bytes": {row: metric.ProtectedCapacity}, "protected_memory_used_bytes": {row: metric.ProtectedUsed},

		"power_draw_watts": {row: metric.PowerDraw}, "power_draw_average_watts": {row: metric.PowerAverage}, "power_draw_instant_watts": {row: metric.PowerInstant},
		"enforced_power_limit_watts": {row: metric.PowerLimit}, "power_limit_watts": {row: metric.PowerRequestedLimit},
		"power_default_limit_watts": {row: metric.PowerDefaultLimit}, "power_max_limit_watts": {row: metric.PowerMaxLimit}, "power_min_limit_watts": {row: metric.PowerMinLimit},
		"edpp_multiplier_ratio": {row: metric.EDPPMultiplier}, "energy_joules_total": {row: metric.Energy},
		"temperature_gpu": {row: metric.Temperature}, "temperature_memory": {row: metric.MemoryTemperature}, "temperature_gpu_tlimit": {row: metric.TemperatureMargin},
		"fan_speed_ratio": {row: metric.FanSpeed}, "pstate": {row: metric.PerformanceState},

		"remapped_rows_pending": {row: metric.RemapPending}, "remapped_rows_failure": {row: metric.RemapFailed},
		"ecc_errors_uncorrected_aggregate_sram_threshold_exceeded": {row: metric.SRAMThreshold}, "gpu_recovery_action": {row: metric.RecoveryAction},
		"fabric_state": {row: metric.FabricState}, "fabric_clique_id": {row: metric.FabricClique}, "c2c_mode": {row: metric.C2CMode},
		"pcie_link_gen_current": {row: metric.PCIeGeneration}, "pcie_link_gen_max": {row: metric.PCIeMaxGeneration}, "pcie_link_gen_gpumax": {row: metric.PCIeGPUGeneration},
		"pcie_link_width_current": {row: metric.PCIeWidth}, "pcie_link_width_max": {row: metric.PCIeMaxWidth},
		"persistence_mode": {row: metric.PersistenceMode}, "compute_mode": {row: metric.ComputeMode}, "accounting_mode": {row: metric.AccountingMode},
		"accounting_buffer_size": {row: metric.AccountingBuffer}, "display_active": {row: metric.DisplayActive}, "display_attached": {row: metric.DisplayAttached},
	}
	of := func(row *metric.Def, format string, values ...string) {
		for i, v := range values {
			if v != "" {
				facts[strings.ReplaceAll(format, "*", v)] = fact{row: row, at: i}
			}
		}
	}
	of(metric.Clock, "clocks_current_*_clock_hz", "graphics", "sm", "memory", "video")
	of(metric.MaxClock, "clocks_max_*_clock_hz", "graphics", "sm", "memory")
	for _, before := range []string{"clocks_event_reasons", "clocks_throttle_reasons"} { // the driver renamed its fields
		of(metric.ClockEvent, before+"_*", "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
			"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
	}
	of(metric.ClockHeld, "clocks_event_reasons_counters_*_seconds", "sw_power_cap", "", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
	for i, kind := range []string{"corrected", "uncorrected"} {
		errors := "ecc_errors_" + kind
		facts[errors+"_volatile_total"], facts[errors+"_aggregate_total"] = fact{row: metric.ECCErrors, at: i}, fact{row: metric.ECCLifetimeErrors, at: i}
		of([]*metric.Def{metric.ECCCorrected, metric.ECCUncorrected}[i], errors+"_volatile_*", "dram", "sram")
		of([]*metric.Def{metric.ECCLifetimeCorrected, metric.ECCLifetimeUncorrected}[i], errors+"_aggregate_*", "dram", "sram")
	}
	of(metric.SRAMErrors, "ecc_errors_uncorrected_aggregate_sram_*", "parity", "secded", "l2", "sm", "pcie", "mcu", "other")
	of(metric.ECCMode, "ecc_mode_*", "current", "pending")
	of(metric.MIGMode, "mig_mode_*", "current", "pending")
	of(metric.GSPMode, "gsp_mode_*", "current", "default")
	of(metric.RemappedRows, "remapped_rows_*", "correctable", "uncorrectable")
	of(metric.RemapInactive, "remapped_rows_*_inactive", "correctable", "uncorrectable")
	of(metric.RemapHistogram, "remapped_rows_histogram_*", "max", "high", "partial", "low", "none")
	of(metric.PCIeThroughput, "pcie_throughput_*_bytes_per_second", "rx", "tx")
	return facts
}

// smiInstanceFacts are those of a MIG instance.
func smiInstanceFacts() map[string]fact {
	return map[string]fact{
		"mig_memory_total_bytes": {row: metric.MIGMemoryCapacity}, "mig_memory_used_bytes": {row: metric.MIGMemoryUsed},
		"mig_memory_free_bytes": {row: metric.MIGMemoryFree}, "mig_memory_reserved_bytes": {row: metric.MIGMemoryReserved},
		"mig_graphics_activity_ratio": {row: metric.MIGGraphicsActivity}, "mig_sm_activity_ratio": {row: metric.MIGSMActivity},
		"mig_sm_occupancy_ratio": {row: metric.MIGSMOccupancy}, "mig_tensor_activity_ratio": {row: metric.MIGTensorActivity},
	}
}

// smiWords are the names, without smiPrefix, that say something else than a fact in one
// number.
var smiWords = []string{
	"gpu_info", "index", "xid_errors_total", "xid_last_timestamp_seconds", "compute_apps", "compute_app_info", "compute_app_used_memory_bytes", "mig_info",
	"last_collect_success", "command_exit_code", "nvml_return_code", "last_collect_success_timestamp_seconds", "compute_apps_last_collect_success",
}

// smi reads a page of nvidia_gpu_exporter.
type smi struct {
	facts, ofInstances map[string]fact

	// of the page that is read
	*board
	now       time.Time
	samples   int
	instances []migFact
	collected time.Time // when the exporter last looked
	failing   string    // why it could not
	apps      bool      // it lists processes
	unlisted  bool      // and says that it could not
}

// migFact is a number of a MIG instance: which compute instance has its memory is
// known at the page's end.
type migFact struct {
	d     *device
	gi    int
	fact  fact
	value float64
}

func (c *smi) begin(now time.Time) {
	*c = smi{facts: c.facts, ofInstances: c.ofInstances, board: newBoard(), now: now}
}

func (c *smi) wants(name []byte) bool {
	return len(name) > len(smiPrefix) && string(name[:len(smiPrefix)]) == smiPrefix
}

func (c *smi) sample(name []byte, labels []exposition.Label, v float64) error {
	c.samples++
	name = name[len(smiPrefix):]
	uuid := valueOf(labels, "uuid")
	if len(uuid) == 0 {
		c.health(string(name), v)
		return nil
	}
	if err := c.host(labels); err != nil {
		return err
	}
	d, _, err := c.device(uuid)
	if err != nil {
		return err
	}
	f, ok := c.facts[string(name)]
	switch {
	case ok:
		if f.row == metric.MIGMode && f.at == 0 {
			d.gpu.MIG = v == 1
		}
		d.lay(f.row, f.at, 1, f.reading(v))
	case string(name) == "gpu_info":
		c.introduce(d, labels)
	case string(name) == "index":
		if n := codeOf(v); n >= 0 && !d.indexed {
			d.gpu.Index, d.indexed = n, true
		}
	case string(name) == "xid_errors_total", string(name) == "xid_last_timestamp_seconds":
		c.xid(d, string(name), labels, v)
	case string(name) == "compute_apps":
		c.apps, d.processes = true, true
		d.lay(metric.ProcessCount, 0, 1, v)
	case string(name) == "compute_app_info", string(name) == "compute_app_used_memory_bytes":
		c.apps = true
		c.process(d, string(name), labels, v)
	case string(name) == "mig_info":
		c.mig(d, labels)
	default:
		if f, ok := c.ofInstances[string(name)]; ok {
			if gi := numberOf(valueOf(labels, "gpu_instance_id")); gi >= 0 && len(c.instances) < maxSamples {
				c.instances = append(c.instances, migFact{d, gi, f, v})
			}
		}
	}
	return nil
}

// health takes in what the exporter says of itself.
func (c *smi) health(name string, v float64) {
	switch {
	case name == "last_collect_success" && v == 0:
		c.failing = "the exporter says that its last look at the GPUs failed"
	case (name == "command_exit_code" || name == "nvml_return_code") && v != 0:
		c.failing = "the exporter says that it could not ask the driver"
	case name == "last_collect_success_timestamp_seconds" && v > 0 && v < 1e11:
		c.collected = time.Unix(int64(v), 0)
	case name == "compute_apps_last_collect_success" && v == 0:
		c.unlisted = true
	}
}

func (c *smi) introduce(d *device, labels []exposition.Label) {
	for i := range labels {
		v := labels[i].Value
		switch string(labels[i].Name) {
		case "name":
			d.gpu.Model = word(v)
		case "vbios_version":
			d.gpu.VBIOS = word(v)
			c.version("vbios", v)
		case "driver_version":
			c.version("driver", v)
		case "cuda_version":
			c.version("cuda", v)
		case "pci_bus_id":
			d.gpu.PCIBusID = word(v)
		case "serial":
			if n := word(v); n != "[N/A]" && n != "N/A" && n != "0" {
				d.gpu.Serial = n
			}
		case "compute_cap":
			d.gpu.ComputeCapability = word(v)
		case "index":
			if n := numberOf(v); n >= 0 {
				d.gpu.Index, d.indexed = n, true
			}
		}
	}
}

func (c *smi) xid(d *device, name string, labels []exposition.Label, v float64) {
	code := numberOf(valueOf(labels, "xid"))
	if code <= 0 {
		return
	}
	var told *fallen
	for i := range d.fallen {
		if d.fallen[i].code == code {
			told = &d.fallen[i]
		}
	}
	if told == nil {
		d.fallen = append(d.fallen, fallen{way: byTotal, gi: -1, code: code, value: math.NaN()})
		told = &d.fallen[len(d.fallen)-1]
	}
	if name == "xid_errors_total" {
		told.value = v
	} else if v > 0 && v < 1e11 {
		told.at = time.UnixMilli(int64(v * 1e3))
	}
}

// process takes in a process with a context open.
func (c *smi) process(d *device, name string, labels []exposition.Label, v float64) {
	pid, mig := numberOf(valueOf(labels, "pid")), ""
	if pid <= 0 {
		return
	}
	if gi, ci := numberOf(valueOf(labels, "gpu_instance_id")), numberOf(valueOf(labels, "compute_instance_id")); gi >= 0 && ci >= 0 {
		mig = (&collector.Instance{GI: gi, CI: ci}).MIG()
	}
	var p *collector.Process
	for i := range c.processes {
		if o := &c.processes[i]; o.PID == pid && o.UUID == d.gpu.UUID && o.MIG == mig {
			p = o
		}
	}
	if p == nil {
		if len(c.processes) == maxProcesses {
			return
		}
		c.processes = append(c.processes, collector.Process{PID: pid, Name: baseName(word(valueOf(labels, "process_name"))), UID: -1,
			GPU: d.gpu.Index, UUID: d.gpu.UUID, MIG: mig, Readings: collector.NewReadings(metric.Process)})
		p = &c.processes[len(c.processes)-1]
	}
	if name == "compute_app_used_memory_bytes" && metric.ProcessMemoryUsed.Plausible(v) {
		p.Set(metric.ProcessMemoryUsed, v)
	}
}

// baseName is what a process calls itself, without where its program is.
func baseName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

func (c *smi) mig(d *device, labels []exposition.Label) {
	gi, ci := numberOf(valueOf(labels, "gpu_instance_id")), numberOf(valueOf(labels, "compute_instance_id"))
	if gi < 0 || ci < 0 {
		return
	}
	if i := d.instance(gi, ci); i != nil {
		i.MIGUUID, i.Profile = word(valueOf(labels, "mig_uuid")), word(valueOf(labels, "profile"))
	}
}

// end gives what is told of a GPU instance to the first of its compute instances: they
// share it, and it is there once. It fails if the exporter has not looked.
func (c *smi) end() error {
	if c.failing != "" {
		return page.Failing("not_collected", "%s", c.failing)
	}
	if age := c.now.Sub(c.collected); !c.collected.IsZero() && age > frozenAfter {
		return page.Failing("not_collected", "the exporter says that it last looked at the GPUs %s ago", text.Span(age))
	}
	for _, m := range c.instances {
		var first *instance
		for _, i := range m.d.instances {
			if i.GI == m.gi && (first == nil || i.CI < first.CI) {
				first = i
			}
		}
		if first != nil {
			first.lay(m.fact.row, m.fact.at, 1, m.fact.reading(m.value))
		}
	}
	if c.unlisted || !c.apps {
		c.processes = nil
		for _, d := range c.devices {
			d.processes = false
			d.gpu.Set(metric.ProcessCount, math.NaN())
		}
	}
	return nil
}
