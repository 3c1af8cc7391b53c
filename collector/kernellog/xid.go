package kernellog

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
)

const address = `([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)`

// The driver's lines. Codes have at most nine digits.
var (
	xidHead  = regexp.MustCompile(`^NVRM: Xid \((?:PCI:)?` + address + `(?: [^)]*)?\): (\d{1,9})(?:, (.*))?$`)
	gpuAt    = regexp.MustCompile(`^NVRM: GPU at (?:PCI:)?` + address + `: (GPU-[0-9A-Fa-f-]{36})\b`)
	gpuLost  = regexp.MustCompile(`^NVRM: (?:The NVIDIA )?GPU ` + address + `\b`)
	sxidLine = regexp.MustCompile(`^nvidia-nvswitch\d+:? SXid \(PCI:` + address + `\): (\d{1,9}), (Fatal|Non-?fatal)\b(?:, Link (-?\d{1,4}))?`)
	printed  = regexp.MustCompile(`^\[ *\d+\.\d+\] `) // the time that printk can put before a line

	processID   = regexp.MustCompile(`^pid=('?<unknown>'?|\d+)(?:, |$)`)
	processName = regexp.MustCompile(`^name=([^,]*)(?:, |$)`)
	linkError   = regexp.MustCompile(`(?:([A-Z][A-Z0-9_]{1,31}) )?\b(Fatal|Nonfatal)\b(?: XC\d+ i\d+)?(?: Link (-?\d{1,4}))?`)
	followsXid  = regexp.MustCompile(`caused by previous Xid \d{1,9}$`)
	newAction   = regexp.MustCompile(`to 0x([0-9A-Fa-f]{1,4}) \([^()]*\)$`)
)

const (
	fallenOff = "fallen off the bus"
	lostXid   = 79
	sameLoss  = time.Minute // a GPU that is lost is told of in several ways
	maxGPUs   = 1024        // addresses that are remembered
)

// xid is an error as a line of the driver tells it.
type xid struct {
	pci  string // 0000:3b:00.0
	code int
	pid  int    // 0 if it is not told
	name string // of the process: private, parsed only so that it is not taken for the message
	body string // what follows them
}

func parseXid(line string) (xid, bool) {
	m := xidHead.FindStringSubmatch(line)
	if m == nil {
		return xid{}, false
	}
	code, _ := strconv.Atoi(m[2]) // nine digits at most
	x := xid{pci: collector.PCIAddress(m[1]), code: code, body: m[3]}
	if p := processID.FindStringSubmatch(x.body); p != nil {
		if pid, err := strconv.ParseInt(p[1], 10, 32); err == nil {
			x.pid = int(pid)
		}
		x.body = x.body[len(p[0]):]
	}
	if p := processName.FindStringSubmatch(x.body); p != nil {
		if p[1] != "<unknown>" {
			x.name = p[1]
		}
		x.body = x.body[len(p[0]):]
	}
	return x, true
}

// gist is what the rule book reads of a message, in closed words: nothing else
// leaves this package, for the rest may hold the name of a user's program.
func (x xid) gist() string {
	switch {
	case x.code >= 144 && x.code <= 150:
		return linkGist(x.body)
	case x.code == 154:
		return actionGist(x.body)
	case x.code == 45:
		return followsXid.FindString(x.body)
	}
	return ""
}

// linkGist keeps unit, severity and link of an NVLink error. The last match is the
// driver's: a program's name stands before it.
func linkGist(body string) string {
	all := linkError.FindAllStringSubmatch(body, -1)
	if all == nil {
		return ""
	}
	m := all[len(all)-1]
	gist := strings.TrimSpace(m[1] + " " + m[2])
	if link := linkName(m[3]); link != "" {
		gist += ", " + link
	}
	return gist
}

// recoveryActions are the driver's words by their number in NVML.
var recoveryActions = []string{"None", "GPU Reset Required", "Node Reboot Required", "Drain P2P", "Drain and Reset", "Recover IMEX Domain"}

// actionGist returns the new recovery action.
func actionGist(body string) string {
	body = strings.TrimSpace(body)
	for _, words := range recoveryActions {
		if strings.HasSuffix(strings.TrimSuffix(body, ")"), words) {
			return words
		}
	}
	if m := newAction.FindStringSubmatch(body); m != nil {
		n, _ := strconv.ParseUint(m[1], 16, 16) // four digits at most
		if n < uint64(len(recoveryActions)) {
			return recoveryActions[n]
		}
		return "action " + strconv.FormatUint(n, 10)
	}
	return ""
}

// parseSXid reads the first line of an error of an NVSwitch. The lines after it
// have the same code and tell of the same error.
func parseSXid(line string) (collector.Event, bool) {
	m := sxidLine.FindStringSubmatch(line)
	if m == nil {
		return collector.Event{}, false
	}
	code, _ := strconv.Atoi(m[2]) // nine digits at most
	ev := collector.Event{Kind: collector.SXidEvent, Code: code, PCI: collector.PCIAddress(m[1]), Fatal: m[3] == "Fatal", Source: FromKernel}
	ev.Text = linkName(m[4])
	return ev, true
}

// linkName is a link by the digits of its number; -1 is none of them, and is told.
func linkName(digits string) string {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return "" // there are none
	}
	return "link " + strconv.Itoa(n)
}

// parser makes events of the kernel's messages. It remembers what one line says
// for the next.
type parser struct {
	uuids   map[string]string    // of GPUs by address, where the driver has told
	lost    map[string]time.Time // when a GPU was last told lost
	pending string               // address that a message about a lost GPU began with
	left    int                  // lines in which it may go on
}

func newParser() parser {
	return parser{uuids: map[string]string{}, lost: map[string]time.Time{}}
}

// message returns the events of one message, which may have several lines.
func (p *parser) message(text string, at time.Time) []collector.Event {
	var events []collector.Event
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		line = line[len(printed.FindString(line)):]
		if !strings.HasPrefix(line, "NVRM: ") && !strings.HasPrefix(line, "nvidia-nvswitch") {
			continue
		}
		if ev, ok := p.line(line); ok && !p.repeats(ev, at) {
			ev.Time, ev.Source = at, FromKernel
			events = append(events, ev)
		}
	}
	return events
}

func (p *parser) line(line string) (collector.Event, bool) {
	p.left--
	if x, ok := parseXid(line); ok {
		return collector.Event{Kind: collector.XidEvent, Code: x.code, PCI: x.pci, UUID: p.uuids[x.pci], Text: x.gist()}, true
	}
	if ev, ok := parseSXid(line); ok {
		return ev, true
	}
	if m := gpuAt.FindStringSubmatch(line); m != nil {
		if len(p.uuids) < maxGPUs {
			p.uuids[collector.PCIAddress(m[1])] = m[2]
		}
		return collector.Event{}, false
	}
	if m := gpuLost.FindStringSubmatch(line); m != nil {
		p.pending, p.left = collector.PCIAddress(m[1]), 3
	}
	if strings.Contains(line, fallenOff) && p.left > 0 {
		p.left = 0
		return collector.Event{Kind: collector.XidEvent, Code: lostXid, PCI: p.pending, UUID: p.uuids[p.pending]}, true
	}
	return collector.Event{}, false
}

// repeats reports whether an event tells again that a GPU is lost. Other errors do
// fall twice.
func (p *parser) repeats(ev collector.Event, at time.Time) bool {
	if ev.Kind != collector.XidEvent || ev.Code != lostXid {
		return false
	}
	last, told := p.lost[ev.PCI]
	if told || len(p.lost) < maxGPUs {
		p.lost[ev.PCI] = at
	}
	return told && at.Sub(last).Abs() < sameLoss
}
