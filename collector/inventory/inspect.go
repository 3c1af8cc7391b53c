package inventory

import (
	"errors"
	"slices"

	"gpuvigil/collector/proc"

	"golang.org/x/sys/unix"
)

// reading is what was found in one process. What could not be read again is as it
// was last.
type reading struct {
	mapped   string // code that was mapped when its libraries were read
	parts    []part
	limited  string // why those are not all that there is to tell, as unread
	served   []listener
	data     []data
	image    image
	imageErr error
	asked    bool   // for the image
	unread   string // why not all was read, one of metric.UnreadReason; empty if it was
}

// part is a component of a process with its version.
type part struct{ component, version string }

// task is one look at one process.
type task struct {
	procfs   string
	pid      int
	start    uint64
	runtimes bool // with what takes the right to trace the process
	node     *nodeMounts
	sockets  *tables
	host     string // the node's root directory; empty if it is not looked into
	before   reading
}

// run looks at the process and returns what is known of it now.
func (t *task) run() reading {
	r := t.before
	r.unread = ""
	p, err := openProcess(t.procfs, t.pid, t.start)
	if err != nil {
		r.fail(err)
		return r
	}
	if found, err := p.data(t.node); err != nil {
		r.fail(err)
	} else {
		r.data = found
	}
	if !r.asked && t.host != "" {
		r.image, r.imageErr, r.asked = t.image(p)
	}
	if t.runtimes {
		t.libraries(p, &r)
		if found, err := p.serves(t.sockets); err != nil {
			r.fail(err)
		} else {
			r.served = found
		}
	}
	if err := p.Close(); err != nil {
		r.fail(err)
	}
	return r
}

// image asks once: the image of a container does not change.
func (t *task) image(p *process) (image, error, bool) {
	groups, err := p.Read("cgroup", 64<<10)
	if err != nil {
		return image{}, nil, false
	}
	id := containerOf(string(groups))
	if id == "" {
		return image{}, nil, true
	}
	host, err := openRoot(unix.AT_FDCWD, t.host)
	if err != nil {
		return image{}, err, false
	}
	i, err := imageOf(host, id)
	return i, errors.Join(err, host.close()), true
}

// libraries reads what the process has mapped, unless it has mapped as much code as
// when that was read last.
func (t *task) libraries(p *process, r *reading) {
	st, err := p.status()
	if err != nil {
		r.fail(err)
		return
	}
	if st.mapped == "" || st.mapped != r.mapped {
		if err := t.readLibraries(p, r); err != nil {
			r.fail(err)
			return
		}
		r.mapped = st.mapped
	}
	if r.unread == "" {
		r.unread = r.limited
	}
}

func (t *task) readLibraries(p *process, r *reading) error {
	f, err := p.File("maps")
	if err != nil {
		return err
	}
	files, cut, err := readMaps(f, interesting)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	inside, err := p.root()
	if err != nil {
		return err
	}
	tell := teller{root: inside}
	r.parts, r.limited = tell.parts(files), ""
	switch {
	case tell.err != nil:
		r.limited = reasonOf(tell.err)
	case cut:
		r.limited = "cut_off"
	}
	return inside.close()
}

// parts says what the files are part of, with versions.
func (t *teller) parts(files []mapped) []part {
	versions := map[string][]string{}
	var order []string
	add := func(component, version string) {
		if versions[component] == nil {
			order = append(order, component)
		}
		if !slices.Contains(versions[component], version) {
			versions[component] = append(versions[component], version)
		}
	}
	for _, m := range files {
		for _, f := range identify(m) {
			add(f.component, t.versionOf(&f))
			for _, name := range f.beside {
				if f.deleted {
					continue
				}
				if v := t.distribution(f.site, []string{name}); v != "" {
					add(name, v)
				}
			}
		}
	}
	var out []part
	for _, component := range order {
		for _, v := range precise(versions[component]) {
			out = append(out, part{component, v})
		}
	}
	return out
}

func (r *reading) fail(err error) {
	if r.unread == "" {
		r.unread = reasonOf(err)
	}
}

// reasonOf is the error as one of metric.UnreadReason.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, proc.ErrGone):
		return "gone"
	case errors.Is(err, errHung):
		return "hung"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "forbidden"
	}
	return "failed"
}
