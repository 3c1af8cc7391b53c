package slurm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

// GPUs is an amount of generic resources of the kind gpu.
type GPUs struct {
	Total int
	Types map[string]int // of those that have a type
	Index []int          // Slurm's indexes, where they are told
}

// bad is the error of a value that cannot be read.
func bad(what, value string) error {
	return fmt.Errorf("%q is no %s of Slurm", text.Clean(value, 60), what)
}

// ParseGPUs reads GPUs from any of the forms in which Slurm writes generic resources
// and TRES: gpu:a100:4(IDX:0,2-4), gres:gpu:4, gres/gpu:a100=4. An untyped amount in a
// list of TRES is the sum of the typed ones beside it. Shards are no GPUs. The words
// for nothing give none.
func ParseGPUs(s string) (GPUs, error) {
	g := GPUs{Types: map[string]int{}}
	total, typed := Unknown, 0
	for _, item := range split(nothing(s)) {
		if item == "" {
			continue
		}
		kind, typ, n, index, err := parseItem(item)
		if err != nil {
			return GPUs{}, err
		}
		if kind != "gpu" {
			continue
		}
		g.Index = append(g.Index, index...)
		if typ == "" && strings.Contains(item, "=") {
			total = n
			continue
		}
		if typ != "" {
			g.Types[typ] += n
		}
		typed += n
	}
	g.Total = typed
	if total != Unknown {
		g.Total = total
	}
	if g.Total > maxGPUs || len(g.Index) > maxGPUs {
		return GPUs{}, bad("number of GPUs", s)
	}
	return g, nil
}

// only returns the type of GPUs that are all of one, else nothing.
func (g GPUs) only() string {
	if len(g.Types) != 1 {
		return ""
	}
	for t, n := range g.Types {
		if n == g.Total {
			return clean(t)
		}
	}
	return ""
}

func nothing(s string) string {
	switch s = strings.TrimSpace(s); s {
	case "N/A", "(null)", "None", "none", "n/a":
		return ""
	}
	return s
}

// split cuts at the commas outside of brackets.
func split(s string) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[':
			depth++
		case ')', ']':
			depth = max(0, depth-1)
		case ',':
			if depth == 0 {
				out = append(out, s[start:i])
				start = i + 1
			}
		}
	}
	return append(out, s[start:])
}

// parseItem reads one resource. What is not a GPU needs no number that fits.
func parseItem(item string) (kind, typ string, n int, index []int, err error) {
	head, rest, bracketed := strings.Cut(item, "(")
	name, count, assigned := strings.Cut(head, "=")
	if assigned && count == "" {
		return "", "", 0, nil, fmt.Errorf("%q is cut off", text.Clean(item, 60))
	}
	for _, prefix := range []string{"gres/", "gres:"} {
		name = strings.TrimPrefix(name, prefix)
	}
	parts := strings.Split(name, ":")
	if parts[0] != "gpu" {
		return parts[0], "", 0, nil, nil
	}
	parts = parts[1:]
	if !assigned {
		count = "1" // gpu alone is one
		if len(parts) > 0 {
			if _, err := strconv.Atoi(parts[len(parts)-1]); err == nil {
				count, parts = parts[len(parts)-1], parts[:len(parts)-1]
			}
		}
	}
	n, err = strconv.Atoi(count)
	if err != nil || n < 0 || n > maxGPUs || len(parts) > 1 {
		return "", "", 0, nil, bad("number of GPUs", item)
	}
	if len(parts) == 1 {
		typ = text.Clean(parts[0], maxName)
	}
	if list, ok := strings.CutPrefix(rest, "IDX:"); bracketed && ok {
		index, err = indexes(strings.TrimSuffix(list, ")"))
	}
	return "gpu", typ, n, index, err
}

// maxIndex is more than the GPUs of any node.
const maxIndex = 4096

// indexes reads 0,2-3; N/A is none.
func indexes(list string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(nothing(list), ",") {
		if part == "" {
			continue
		}
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if errors.Join(err1, err2) != nil || from < 0 || to < from || to > maxIndex || len(out)+to-from > maxIndex {
			return nil, bad("list of indexes", list)
		}
		for i := from; i <= to; i++ {
			out = append(out, i)
		}
	}
	return out, nil
}

// maxDays is longer than anything runs.
const maxDays = 10_000

// ParseDuration reads D-HH:MM:SS and what of it may be left out; UNLIMITED is
// Unlimited. Slurm's words for not known are 0.
func ParseDuration(s string) (time.Duration, error) {
	switch strings.ToUpper(strings.TrimSpace(s)) {
	case "UNLIMITED", "INFINITE":
		return Unlimited, nil
	case "", "INVALID", "NOT_SET", "N/A", "UNKNOWN", "NONE", "PARTITION_LIMIT":
		return 0, nil
	}
	days, clock, dated := strings.Cut(strings.TrimSpace(s), "-")
	if !dated {
		days, clock = "0", days
	}
	d, err := strconv.Atoi(days)
	if err != nil || d < 0 || d > maxDays {
		return 0, bad("duration", s)
	}
	parts := strings.Split(clock, ":")
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	switch {
	case len(parts) > 3 || !dated && len(parts) == 1:
		return 0, bad("duration", s)
	case !dated:
		units = units[3-len(parts):]
	}
	total := time.Duration(d) * 24 * time.Hour
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > maxDays*24 {
			return 0, bad("duration", s)
		}
		total += time.Duration(n) * units[i]
	}
	return total, nil
}

// ParseTime reads a time, which Slurm writes without its zone: the commands are run
// in UTC. Slurm's words for not known are the zero time.
func ParseTime(s string) (time.Time, error) {
	switch s = strings.TrimSpace(s); s {
	case "", "N/A", "Unknown", "NONE", "None":
		return time.Time{}, nil
	}
	t, err := time.Parse("2006-01-02T15:04:05", s)
	if err != nil {
		return time.Time{}, bad("time", s)
	}
	return t, nil
}

// ParseMemory reads 64Gn, 250.5G or 0n as bytes; without a unit it is MiB. Whether it
// is of a node (n) or a CPU (c) is for who asked. Nothing is Unknown.
func ParseMemory(s string) (int64, error) {
	number := strings.TrimRight(nothing(s), "nc")
	if number == "" {
		return Unknown, nil
	}
	unit := float64(1 << 20)
	if i := strings.IndexByte("KMGTP", number[len(number)-1]); i >= 0 {
		unit = math.Pow(1024, float64(i+1))
		number = number[:len(number)-1]
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0) || v*unit > 1<<60 {
		return 0, bad("amount of memory", s)
	}
	return int64(v * unit), nil
}

// ParseArray reads an id as squeue shows it: how many jobs it stands for and how many
// of them may run at once, 0 for no limit.
func ParseArray(id string) (tasks, limit int, err error) {
	_, list, ok := strings.Cut(id, "_[")
	if !ok {
		return 1, 0, nil
	}
	list, ok = strings.CutSuffix(list, "]")
	list, throttle, throttled := strings.Cut(list, "%")
	if throttled {
		if limit, err = strconv.Atoi(throttle); err != nil || limit < 1 {
			return 0, 0, bad("array", id)
		}
	}
	if !ok { // Slurm cuts long lists and ends them with ...
		return 0, 0, bad("array", id)
	}
	for _, part := range strings.Split(list, ",") {
		n, err := countTasks(part)
		if err != nil || tasks+n > maxGPUs {
			return 0, 0, bad("array", id)
		}
		tasks += n
	}
	return tasks, limit, nil
}

// countTasks counts 7, 1-9 or 1-9:2.
func countTasks(part string) (int, error) {
	span, step, stepped := strings.Cut(part, ":")
	low, high, ranged := strings.Cut(span, "-")
	if !ranged {
		high = low
	}
	by := 1
	var err0 error
	if stepped {
		by, err0 = strconv.Atoi(step)
	}
	from, err1 := strconv.Atoi(low)
	to, err2 := strconv.Atoi(high)
	if errors.Join(err0, err1, err2) != nil || from < 0 || to < from || by < 1 {
		return 0, errors.New("no span of tasks")
	}
	return (to-from)/by + 1, nil
}
