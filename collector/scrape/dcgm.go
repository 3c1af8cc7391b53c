package scrape

import (
	"bytes"
	"math"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/internal/metric"
)

// dcgm reads a page of dcgm-exporter.
type dcgm struct {
	uses map[string]*use

	// of the page that is read
	*board
	seen      [gens]bool
	base      bool // it has names whose unit came with the doubtful ones' being shares
	unlabeled int  // samples of GPUs that no uuid names
	last      subject
}

func (c *dcgm) begin() { *c = dcgm{uses: c.uses, board: newBoard()} }

func (c *dcgm) wants(name []byte) bool { return c.uses[string(name)] != nil }

func (c *dcgm) sample(name []byte, labels []exposition.Label, v float64) error {
	of, err := c.subject(labels)
	if err != nil {
		return err
	}
	c.last = of
	c.take(c.uses[string(name)], of, labels, v)
	return nil
}

// subject is what the labels of a series say that it is of.
type subject struct {
	place
	device   *device // nil: no uuid names one
	instance *instance
}

func (c *dcgm) subject(labels []exposition.Label) (subject, error) {
	if err := c.host(labels); err != nil {
		return subject{}, err
	}
	of := subject{place: placeOf(labels)}
	if len(of.uuid) == 0 {
		return of, nil
	}
	d, isNew, err := c.device(of.uuid)
	if err != nil {
		return subject{}, err
	}
	of.device = d
	if isNew {
		c.introduce(d, labels)
	}
	if of.gi >= 0 {
		if of.instance = d.instance(of.gi, 0); of.instance != nil && of.instance.Profile == "" {
			of.instance.Profile = word(of.profile)
		}
	}
	c.given(d, of.instance, labels)
	return of, nil
}

func (c *dcgm) take(u *use, of subject, labels []exposition.Label, v float64) {
	if of.device == nil {
		c.unlabeled++
		return
	}
	c.seen[u.gen] = true
	if u.gen == gen49 && u.special != doubtful && u.row != nil && u.row.DCGM[0].Scale != 0 {
		c.base = true
	}
	if !blank(v) {
		c.lay(u, of.device, of.instance, of.place, labels, v)
	} else if u.row != nil {
		of.device.lay(u.row, u.name.At, 0, math.NaN())
	}
}

// lay takes the value in where it belongs.
func (c *dcgm) lay(u *use, d *device, i *instance, at place, labels []exposition.Label, v float64) {
	switch u.special {
	case lastXid:
		d.fallen = append(d.fallen, fallen{way: byLast, gi: at.gi, code: codeOf(v)})
	case windowXid, totalXid:
		if code := numberOf(valueOf(labels, "xid")); code > 0 {
			w := byWindow
			if u.special == totalXid {
				w = byTotal
			}
			d.fallen = append(d.fallen, fallen{way: w, gi: at.gi, code: code, value: v})
		}
	case reasons:
		if v >= 0 && v < 1<<32 {
			for bit := range metric.ClockReason.Values {
				d.lay(metric.ClockEvent, bit, 1, float64(uint32(v)>>bit&1))
			}
		}
	case doubtful:
		if i == nil {
			d.unclear = append(d.unclear, unclear{u.row, u.rank, v})
		}
	default:
		switch v = u.name.Reading(v); {
		case at.gi < 0 && u.row != nil:
			d.lay(u.row, u.name.At, u.rank, v)
		case i != nil && u.instance != nil:
			i.lay(u.instance, u.name.At, u.rank, v)
		case at.gi >= 0 && u.row != nil && ofBoard(u.name.Name):
			d.lay(u.row, u.name.At, u.rank, v)
		}
	}
}

// ofBoard reports whether a series of an instance tells of its whole GPU: power and
// temperature have no parts, what is measured of engines and memory does.
func ofBoard(name string) bool {
	return strings.HasPrefix(name, "DCGM_FI_DEV_") && !strings.Contains(name, "UTIL")
}

func codeOf(v float64) int {
	if v >= 0 && v <= maxCode && v == math.Trunc(v) {
		return int(v)
	}
	return -1
}

// introduce takes over what the labels say of the GPU and the node.
func (c *dcgm) introduce(d *device, labels []exposition.Label) {
	for i := range labels {
		l := &labels[i]
		if string(l.Value) == "<<<NULL>>>" {
			continue
		}
		switch string(l.Name) {
		case "gpu":
			if n := numberOf(l.Value); n >= 0 {
				d.gpu.Index, d.indexed = n, true
			}
		case "device":
			if n := numberOf(bytes.TrimPrefix(l.Value, []byte("nvidia"))); n >= 0 && !d.indexed {
				d.gpu.Index = n
			}
		case "modelName":
			d.gpu.Model = word(l.Value)
		case "pci_bus_id":
			d.gpu.PCIBusID = word(l.Value)
		case "DCGM_FI_DEV_SERIAL":
			d.gpu.Serial = word(l.Value)
		case "DCGM_FI_DEV_VBIOS_VERSION":
			d.gpu.VBIOS = word(l.Value)
			c.version("vbios", l.Value)
		case "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION":
			c.version("driver", l.Value)
		case "DCGM_FI_NVML_VERSION":
			c.version("nvml", l.Value)
		}
	}
}

// given notes whom the exporter says that the device was given to. What Prometheus has
// read carries the exporter's own pod, and the holder's as exported_pod.
func (c *dcgm) given(d *device, i *instance, labels []exposition.Label) {
	var pod, namespace, container, job []byte
	exported := false
	for n := range labels {
		v := labels[n].Value
		switch string(labels[n].Name) {
		case "exported_pod":
			pod, exported = v, true
		case "exported_namespace":
			namespace, exported = v, true
		case "exported_container":
			container, exported = v, true
		case "pod", "pod_name":
			if !exported {
				pod = v
			}
		case "namespace", "pod_namespace":
			if !exported {
				namespace = v
			}
		case "container", "container_name":
			if !exported {
				container = v
			}
		case "hpc_job":
			job = v
		}
	}
	if len(pod) == 0 && len(job) == 0 {
		return
	}
	mig := ""
	if i != nil {
		mig = i.MIG()
	}
	key := bytes.Join([][]byte{namespace, pod, container, job, []byte(mig)}, []byte{0xff})
	if bytes.Equal(key, d.holder) {
		return
	}
	d.holder = key
	if len(pod) > 0 && len(namespace) > 0 {
		d.hold(mig, collector.Owner{Kind: "pod", ID: word(namespace) + "/" + word(pod)}, word(container), DCGM)
	}
	if len(job) > 0 {
		d.hold(mig, collector.Owner{Kind: "job", ID: "slurm/" + word(job)}, "", DCGM)
	}
}

// place is which device a series is of.
type place struct {
	uuid    []byte
	gi      int // -1: the whole GPU
	profile []byte
}

func placeOf(labels []exposition.Label) place {
	p := place{gi: -1}
	for i := range labels {
		switch v := labels[i].Value; string(labels[i].Name) {
		case "UUID", "uuid":
			p.uuid = v
		case "GPU_I_ID":
			p.gi = numberOf(v)
		case "GPU_I_PROFILE":
			p.profile = v
		}
	}
	return p
}
