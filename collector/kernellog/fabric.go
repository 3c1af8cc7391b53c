package kernellog

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gpuvigil/collector"
)

var (
	fabricLine  = regexp.MustCompile(`^\[([^\]]+)\] (?:\[([A-Z]+)\] )?(?:\[tid \d+\] )?(.*)$`)
	fabricError = regexp.MustCompile(`^detected NVSwitch (fatal|non-fatal) error (\d{1,9}) on .*NVSwitch pci bus id ([0-9A-Fa-f:.]+)(?: .*?port (\d{1,4}))?`)
)

// maxFabricText bounds what is kept of a line of the fabric manager, in runes.
const maxFabricText = 160

// parseFabric reads a line of the fabric manager's log. The time is zero if the
// line has no stamp that is known; stamps without a zone are this machine's.
func parseFabric(line string) (ev collector.Event, ok bool) {
	m := fabricLine.FindStringSubmatch(strings.TrimRight(line, "\r"))
	if m == nil {
		return ev, false
	}
	at, text := fabricTime(m[1]), m[3]
	if ev, ok = parseSXid(text); !ok {
		if e := fabricError.FindStringSubmatch(text); e != nil {
			code, _ := strconv.Atoi(e[2]) // nine digits at most
			ev, ok = collector.Event{Kind: collector.SXidEvent, Code: code, PCI: collector.PCIAddress(e[3]), Fatal: e[1] == "fatal", Text: linkName(e[4])}, true
		}
	}
	if !ok && (m[2] == "ERROR" || m[2] == "FATAL" || m[2] == "CRITICAL") {
		ev, ok = collector.Event{Kind: collector.FabricEvent, Text: cleaned(text)}, true
	}
	ev.Time, ev.Source = at, FromFabric
	return ev, ok
}

func fabricTime(stamp string) time.Time {
	if at, err := time.ParseInLocation("Jan _2 2006 15:04:05", stamp, time.Local); err == nil {
		return at
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return time.Time{}
	}
	return at
}

// cleaned keeps the beginning of a text, without what moves a cursor.
func cleaned(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "�"))
	runes = runes[:min(len(runes), maxFabricText)]
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	return strings.TrimSpace(string(runes))
}

// readFabric reads the new lines. The stamps' zone may be another than this
// process's, so that only lines written while no agent read are dated by them.
func (s *Source) readFabric(ctx context.Context, f *stream, wall time.Time) error {
	since := s.fabricRead
	if since.IsZero() {
		if err := f.seek(s.pos.FabricFile, s.pos.FabricOffset, 0); err != nil {
			return err
		}
	}
	n := 0
	for ; !s.full(ctx, n); n++ {
		line, ok, err := f.line()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		ev, ok := parseFabric(string(line))
		if !ok {
			continue
		}
		ev.Time = lastly(ev.Time, since, wall)
		s.fabricErrors++
		s.events = append(s.events, ev)
	}
	s.fabricRead = wall
	s.pos.FabricFile, s.pos.FabricOffset = f.inode, f.position()
	return nil
}
