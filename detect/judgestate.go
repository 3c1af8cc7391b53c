package detect

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

type judgeState struct {
	Version int                `json:"version"`
	GPUs    map[string]*judged `json:"gpus"`
	Jobs    []*jobState        `json:"jobs"`
}

// Save returns the verdicts with their beginnings, what GPUs draw at rest, and what jobs
// have done. The windows of a few minutes begin anew after a restart.
func (j *Judge) Save() ([]byte, error) {
	state := judgeState{Version: 1, GPUs: j.gpus}
	for _, k := range j.jobs {
		state.Jobs = append(state.Jobs, k)
	}
	slices.SortFunc(state.Jobs, func(a, b *jobState) int {
		return strings.Compare(a.Owner.String()+"\x00"+a.Owner.Team, b.Owner.String()+"\x00"+b.Owner.Team)
	})
	return json.Marshal(state)
}

// Restore takes up what Save returned.
func (j *Judge) Restore(data []byte) error {
	var state judgeState
	if err := decodeState(data, &state, 1); err != nil {
		return err
	}
	fresh := NewJudge()
	for uuid, st := range state.GPUs {
		if st == nil || st.Rest == nil || st.Usual == nil || len(fresh.gpus) >= maxJudged {
			continue
		}
		if !slices.Contains(VerdictNames, st.Name) {
			st.Name = "" // a release that knew another one
		}
		full := newJudged()
		full.Name, full.Since, full.Holder, full.Rest, full.Usual, full.Seen = st.Name, st.Since, st.Holder, st.Rest, st.Usual, st.Seen
		full.seen = st.Seen
		fresh.gpus[uuid] = full
	}
	for _, k := range state.Jobs {
		if k == nil || k.Links == nil || len(fresh.jobs) >= maxJudged {
			continue
		}
		k.seen = k.At
		fresh.jobs[k.Owner] = k
	}
	*j = *fresh
	return nil
}

// Shift moves every time that the judge remembers.
func (j *Judge) Shift(by time.Duration) {
	shift(by, &j.now, &j.listedAt, &j.judgedAt)
	j.host.shift(by)
	for _, k := range j.work {
		k.shift(by)
	}
	for _, k := range j.servers {
		k.shift(by)
	}
	for _, k := range j.jobs {
		k.shift(by)
	}
	for _, st := range j.gpus {
		st.shift(by)
	}
}

func (st *judged) shift(by time.Duration) {
	shift(by, &st.Since, &st.Seen, &st.nextAt, &st.heldAt, &st.wordedAt, &st.begun, &st.seen, &st.slowAt)
	st.Rest.Shift(by)
	st.Usual.Shift(by)
	for _, m := range st.mean {
		m.Shift(by)
	}
	st.power.shift(by)
	st.nvlink.shift(by)
	st.pcie.shift(by)
	st.slow.shift(by)
}
