package stream

import "math"

// levelPace has what follows from the time between samples, which hardly ever changes, so
// that no sample has to find it anew.
type levelPace struct {
	// What a sample moves a mean by, as a part of the distance.
	fast, slow, base, calm, usual, seasonal, repeats, burst float64
	short, long                                             [3]float64

	block  [2]float64 // samples in a sixth of a window
	ends   float64    // samples
	fade   float64    // of the memory of alarms, with each sample
	step   float64    // that coarse is of
	coarse float64    // nats for the time between samples
}

// keepPace learns the time between samples. Holes do not count in full.
func (l *Level) keepPace(elapsed float64) {
	if l.step == 0 {
		l.step = elapsed
	}
	if elapsed != l.step {
		l.step += (min(elapsed, 3*l.step) - l.step) / min(float64(l.samples)+1, 100)
	}
	if l.samples < 100 || l.samples%64 == 0 {
		if scale := exp(float64(law.pace * ln(levelUnit/l.step))); scale != l.scale {
			l.scale = scale
			l.pace.set(l)
		}
	}
	if l.pace.step != l.step {
		l.pace.grade(l.step)
	}
}

// set finds what follows from the scale.
func (p *levelPace) set(l *Level) {
	part := func(memory float64) float64 { return 1 / float64(memory*l.scale) }
	p.fast, p.slow, p.base = part(law.fast), part(law.slow), part(law.base)
	p.calm, p.usual = part(law.calm), part(law.usual)
	p.seasonal, p.repeats, p.burst = part(law.seasonal), part(law.repeats), part(law.burst)
	for i := range p.short {
		p.short[i], p.long[i] = part(law.short[i]), part(law.long[i])
	}
	for i := range p.block {
		p.block[i] = min(float64(law.windows[i]*l.scale)/extremeBlocks-0.5, 60_000)
	}
	p.ends = float64(law.ends * l.scale)
	p.fade = 1 - math.Ln2/(float64(law.repeatMemory*l.scale)+1)
}

// grade finds what the time between samples adds to the evidence.
func (p *levelPace) grade(step float64) {
	p.step = step
	switch coarse := ln(step / levelUnit); {
	case coarse > 0:
		p.coarse = float64(law.coarser * coarse)
	case step < law.finest:
		// More samples have more chances to be unlikely, though not as many as if each
		// were a trial of its own.
		p.coarse = float64(law.finer*ln(law.finest/levelUnit)) + float64(law.faster*ln(step/law.finest))
	default:
		p.coarse = float64(law.finer * coarse)
	}
}
