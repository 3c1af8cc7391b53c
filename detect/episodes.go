package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	episodeGap    = 30 * time.Minute // of no waiting, after which it is another episode
	episodesMany  = 4                // in a day
	episodesOver  = 14 * 24 * time.Hour
	episodesMost  = 128
	episodesYoung = 24 * time.Hour // of history, before which a habit says nothing of what is repeated
	patternWidest = 4 * time.Hour  // of an hour of the day
	day24         = 24 * time.Hour
)

// episode is a time in which requests waited longer than they should, with pauses.
type episode struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	Told  bool      `json:"told,omitempty"` // a finding told of it when it happened
}

// episode notes whether requests wait too long now.
func (q *queue) episode(at time.Time) {
	all := q.kept.Episodes
	for len(all) > 0 && at.Sub(all[0].End) > episodesOver {
		all = all[1:]
	}
	if n := len(q.kept.Episodes) - len(all); n > 0 {
		all = slices.Delete(q.kept.Episodes, 0, n)
	}
	q.kept.Episodes = all
	if q.since.IsZero() {
		return
	}
	if n := len(all); n == 0 || q.since.Sub(all[n-1].End) > episodeGap {
		if n >= episodesMost {
			all = slices.Delete(all, 0, 1)
		}
		all = append(all, episode{Start: q.since})
	}
	last := &all[len(all)-1]
	last.End = at
	if at.Sub(q.since) >= 5*time.Minute && (q.slo || at.Sub(q.bound) < boundStays) {
		last.Told = true
	}
	q.kept.Episodes = all
}

// repeats says whether requests waited too long again and again within a day, without
// anybody having been told: each time for less than five minutes, say. Against an
// objective that is a fact; against a habit, as often as that must be rare.
func (q *queue) repeats(now time.Time) (score, surprise float64) {
	lately, before := 0, 0
	for i := range q.kept.Episodes {
		switch e := &q.kept.Episodes[i]; {
		case now.Sub(e.End) >= day24:
			before++
		case !e.Told:
			lately++
		}
	}
	score = float64(lately) / episodesMany
	if q.slo || score < 1 {
		return score, 0
	}
	days := (min(now.Sub(q.kept.First), episodesOver) - day24).Hours() / 24
	if days < episodesYoung.Hours()/24 {
		return 0, 0
	}
	surprise = max(0, -math.Log(7*atLeast(lately, float64(before), days)))
	score = min(score, surprise/certainLog)
	if !(surprise > 0) {
		return 0, 0
	}
	return score, surprise
}

// atLeast is the probability of k events or more in the next day after n in so many
// days: the negative binomial that follows from a Poisson rate that is known only by
// them (Jeffreys' prior).
func atLeast(k int, n, days float64) float64 {
	shape, next := n+0.5, 1/(days+1)
	p, head := math.Pow(1-next, shape), 0.0
	for j := range k {
		head += p
		p *= (shape + float64(j)) / float64(j+1) * next
	}
	if head < 0.5 {
		return 1 - head
	}
	tail := 0.0 // summed for itself, as 1 less the head would have no digits left
	for j := k; p > tail*1e-12; j++ {
		tail += p
		p *= (shape + float64(j)) / float64(j+1) * next
	}
	return tail
}

// pattern says at which time of the day the episodes come, if they keep to one: "on 3 of
// the last 4 days about 09:00-11:00 UTC". It is empty if so few as there are would be as
// close together by chance once in a hundred times.
func pattern(episodes []episode, now time.Time) string {
	n := len(episodes)
	days := map[int64]bool{}
	starts := make([]time.Duration, 0, n)
	for _, e := range episodes {
		days[e.Start.Unix()/86400] = true
		starts = append(starts, time.Duration(e.Start.Unix()%86400)*time.Second)
	}
	if n < 3 || len(days) < 2 {
		return ""
	}
	slices.Sort(starts)
	// The widest gap between two on the clock's round face is what they leave out.
	from, gap := 0, starts[0]+day24-starts[n-1]
	for i := 1; i < n; i++ {
		if g := starts[i] - starts[i-1]; g > gap {
			from, gap = i, g
		}
	}
	arc := day24 - gap
	if arc > patternWidest || float64(n)*math.Pow(arc.Hours()/24, float64(n-1)) > 0.01 {
		return ""
	}
	begin := starts[from].Truncate(30 * time.Minute)
	end := begin
	for i := range episodes {
		e := &episodes[i]
		after := (time.Duration(e.Start.Unix()%86400)*time.Second - begin + day24) % day24
		end = max(end, begin+after+e.End.Sub(e.Start))
	}
	end = min((end + 30*time.Minute - 1).Truncate(30*time.Minute), begin+day24)
	first := slices.MinFunc(episodes, func(a, b episode) int { return cmp.Compare(a.Start.Unix(), b.Start.Unix()) })
	over := now.Unix()/86400 - first.Start.Unix()/86400 + 1
	which := fmt.Sprintf("on %d of the last %d days", len(days), over)
	if int64(len(days)) == over {
		which = "each day"
	}
	return fmt.Sprintf("%s about %s-%s UTC", which, timeOfDay(begin), timeOfDay(end))
}

func timeOfDay(d time.Duration) string {
	d %= day24
	return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
}
