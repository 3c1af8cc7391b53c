package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The causes of rule gpu_memory_errors.
const (
	causeRemapFailed    = "remap_failed"    // a row could not be replaced
	causeSRAMThreshold  = "sram_threshold"  // on-chip memory has had too many errors
	causeUncorrected    = "uncorrected"     // errors that could not be corrected
	causeNoSpares       = "no_spares"       // a bank has no spare row left
	causeResetNeeded    = "reset_needed"    // the next reset replaces what failed
	causeCorrectedOften = "corrected_often" // far more corrected errors than usual
)

const (
	uncorrectedKept = time.Hour // after an uncorrected error
	minCorrected    = 20        // corrected errors in an hour
	correctedSRAM   = 1         // place of SRAM in metric.ECCLocation
)

// GPUMemory reports what the driver tells of a GPU's memory: errors, what was done
// about them, and what has to be done. All but the rate of corrected errors are facts. A
// row that was replaced is none: that is what spare rows are for.
type GPUMemory struct {
	gpus map[string]*memoryHealth // by uuid
}

// memoryHealth is what is known of one GPU's memory.
type memoryHealth struct {
	Seen        time.Time `json:"seen"`              // the newest reading
	Uncorrected float64   `json:"uncorrected"`       // since the driver was loaded; negative: not told yet
	SRAM        float64   `json:"sram"`              // of these, in on-chip memory
	First       time.Time `json:"first,omitzero"`    // of the uncorrected errors that are told
	Last        time.Time `json:"last,omitzero"`     //
	Count       float64   `json:"count,omitempty"`   // of them
	OnChip      float64   `json:"on_chip,omitempty"` // of them
	Corrected   tally     `json:"corrected"`         //
	Boot        string    `json:"boot_id,omitempty"` // that the counters are of
	Pending     time.Time `json:"pending,omitzero"`  // since when a reset has been needed
	said        [6]said   // by cause, in their order
}

// NewGPUMemory returns the detector of rule gpu_memory_errors.
func NewGPUMemory() *GPUMemory { return &GPUMemory{gpus: map[string]*memoryHealth{}} }

// Rule returns gpu_memory_errors.
func (d *GPUMemory) Rule() *rules.Rule { return rules.Get(rules.IDGPUMemory) }

// Observe judges each GPU that answers.
func (d *GPUMemory) Observe(s *collector.Snapshot, report func(Observation)) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		h := d.gpus[g.UUID]
		if h == nil {
			if h = d.meet(g.UUID, s.Time); h == nil {
				continue
			}
		}
		if news(g, metric.Slow, &h.Seen) {
			h.judge(s, g)
		}
		if !g.Answers() {
			continue
		}
		sayOf(g, h.said[:], report)
	}
}

// meet begins to watch a GPU; nil if there is no room.
func (d *GPUMemory) meet(uuid string, now time.Time) *memoryHealth {
	if !roomIn(d.gpus, func(h *memoryHealth) bool { return now.Sub(h.Seen) > habitsKept }) {
		return nil
	}
	h := &memoryHealth{Uncorrected: -1, SRAM: -1}
	h.name()
	d.gpus[uuid] = h
	return h
}

func (h *memoryHealth) name() {
	nameCauses(h.said[:], causeRemapFailed, causeSRAMThreshold, causeUncorrected, causeNoSpares, causeResetNeeded, causeCorrectedOften)
}

// judge takes up new readings.
func (h *memoryHealth) judge(s *collector.Snapshot, g *collector.GPU) {
	flag := func(at int, d *metric.Def, say func() Evidence) {
		if v := g.Value(d); !math.IsNaN(v) {
			h.said[at].set(v, rules.Ticket, v, say)
		}
	}
	flag(0, metric.RemapFailed, sayRemapFailed)
	flag(1, metric.SRAMThreshold, saySRAMThreshold)
	h.uncorrected(s, g)
	h.spares(g)
	h.reset(s, g)
	h.corrected(g)
}

func sayRemapFailed() Evidence {
	return Evidence{
		Title: "GPU memory can no longer be repaired", Seen: "a memory row failed and could not be replaced by a spare one", Expected: "every row that fails replaced",
		Observed: 1, Confidence: Certain, Why: "reported by the driver",
		Action: "Drain the GPU, run the vendor's field diagnostic, and have the board replaced.",
	}
}

func saySRAMThreshold() Evidence {
	return Evidence{
		Title: "GPU on-chip memory is worn out", Seen: "on-chip memory (SRAM) has had as many uncorrected errors as the vendor replaces the board for", Expected: "fewer in the life of the board",
		Observed: 1, Confidence: Certain, Why: "reported by the driver",
		Action: "Drain the GPU and have the board replaced: on-chip memory has no spare rows.",
	}
}

// uncorrected judges errors that fell since somebody looks, also while nobody did. The
// counters begin anew with the driver.
func (h *memoryHealth) uncorrected(s *collector.Snapshot, g *collector.GPU) {
	total, sram := g.ValueAt(metric.ECCErrors, 1), g.ValueAt(metric.ECCUncorrected, correctedSRAM)
	if math.IsNaN(total) {
		h.said[2].told = false
		return
	}
	same := h.Uncorrected >= 0 && total >= h.Uncorrected && h.Boot == s.BootID
	if grew := total - h.Uncorrected; same && grew > 0 {
		if s.Time.Sub(h.Last) > uncorrectedKept {
			h.First, h.Count, h.OnChip = h.Seen, 0, 0
		}
		h.Last, h.Count = h.Seen, h.Count+grew
		if h.SRAM >= 0 && sram > h.SRAM {
			h.OnChip += sram - h.SRAM
		}
	}
	if h.Uncorrected, h.SRAM, h.Boot = total, -1, s.BootID; !math.IsNaN(sram) {
		h.SRAM = sram
	}
	score := 0.0
	if !h.Last.IsZero() && s.Time.Sub(h.Last) <= uncorrectedKept {
		score = h.Count
	}
	h.said[2].set(score, rules.Ticket, h.Count, h.sayUncorrected)
}

func (h *memoryHealth) sayUncorrected() Evidence {
	e := Evidence{
		Title:    "GPU memory errors that could not be corrected",
		Seen:     fmt.Sprintf("%s since %s", count(int(h.Count), "uncorrected memory error", "uncorrected memory errors"), clock(h.First)),
		Expected: "no such error", Observed: h.Count, Confidence: Certain, Why: "reported by the driver",
		Action: "Restart what ran on the GPU, and reset the GPU when it is next idle, so that the row is replaced.",
	}
	if h.OnChip > 0 {
		e.Seen += fmt.Sprintf(", %d of them in on-chip memory", int(h.OnChip))
		e.Action = "Drain the GPU and reset it; on-chip memory has no spare rows, so have the board replaced if it happens again."
	}
	return e
}

// spares judges how many banks have few spare rows left, or none.
func (h *memoryHealth) spares(g *collector.GPU) {
	low, none := g.ValueAt(metric.RemapHistogram, 3), g.ValueAt(metric.RemapHistogram, 4)
	if math.IsNaN(low) || math.IsNaN(none) {
		h.said[3].told = false
		return
	}
	severity := rules.Info
	if none > 0 {
		severity = rules.Ticket
	}
	h.said[3].set(low+none, severity, low+1e6*none, func() Evidence {
		e := Evidence{
			Title: "GPU memory runs out of spare rows", Seen: fmt.Sprintf("%s left with few spare rows", count(int(low), "memory bank is", "memory banks are")),
			Expected: "spare rows in every bank", Observed: low + none, Confidence: Certain, Why: "reported by the driver",
			Action: "Nothing now: plan the replacement of the board.",
		}
		if none > 0 {
			e.Seen = fmt.Sprintf("%s no spare row left, %d few", count(int(none), "memory bank has", "memory banks have"), int(low))
			e.Action = "Plan the replacement of the board: the next row of that bank to fail cannot be replaced."
		}
		return e
	})
}

// reset judges whether a reset is needed to replace what failed.
func (h *memoryHealth) reset(s *collector.Snapshot, g *collector.GPU) {
	waits, told := "", false
	for _, p := range [...]struct {
		d    *metric.Def
		at   int
		what string
	}{
		{metric.RemapPending, 0, "a memory row"}, {metric.BankRemapPending, 0, "a memory bank"}, {metric.RetiredPending, 0, "a memory page"},
		{metric.RepairPending, 0, "a memory channel"}, {metric.RepairPending, 1, "a part of the processor (TPC)"},
	} {
		v := g.ValueAt(p.d, p.at)
		if told = told || !math.IsNaN(v); v > 0 && waits == "" {
			waits = p.what
		}
	}
	if h.said[4].told = told; !told {
		return
	}
	if waits == "" {
		h.Pending = time.Time{}
		h.said[4].set(0, rules.Ticket, 0, nil)
		return
	}
	if h.Pending.IsZero() {
		h.Pending = h.Seen
	}
	h.said[4].set(1, rules.Ticket, float64(len(waits)), func() Evidence {
		return Evidence{
			Title: "GPU needs a reset to replace failed memory", Seen: fmt.Sprintf("%s failed and is replaced by the next reset, seen since %s", waits, clock(h.Pending)),
			Expected: "nothing that waits for a reset", Observed: 1, Confidence: Certain, Why: "reported by the driver; work that does not use that part goes on",
			Action: "Reset the GPU when it is next idle; it need not be drained for this.",
		}
	})
}

// corrected judges whether there are far more corrected errors than usual. They do no
// harm; a memory that has many of them fails sooner.
func (h *memoryHealth) corrected(g *collector.GPU) {
	v := g.ValueAt(metric.ECCErrors, 0)
	if math.IsNaN(v) {
		h.said[5].told = false
		return
	}
	h.Corrected.add(h.Seen, v)
	// Healthy boards differ much in how many they correct: peers do not stand for a habit.
	h.said[5].rise(&h.Corrected, tallyPeers{}, minCorrected, &correctedWords)
}

var correctedWords = riseWords{
	"GPU memory corrects far more errors than usual", "corrected memory errors",
	"Nothing now; watch the GPU's memory, and run the vendor's memory test when it is next idle.",
}

// Shift moves when errors fell.
func (d *GPUMemory) Shift(by time.Duration) {
	for _, h := range d.gpus {
		shift(by, &h.Seen, &h.First, &h.Last, &h.Pending)
		h.Corrected.shift(by)
		forget(h.said[:])
	}
}

// Save returns the errors of each GPU, and how many are usual.
func (d *GPUMemory) Save() ([]byte, error) { return json.Marshal(gpusState[memoryHealth]{1, d.gpus}) }

// Restore takes up what Save returned.
func (d *GPUMemory) Restore(data []byte) error {
	gpus, err := restoreGPUs[memoryHealth](data)
	if err != nil {
		return err
	}
	d.gpus = gpus
	return nil
}
