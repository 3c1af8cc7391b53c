package config

import (
	"fmt"
	"slices"
	"strings"
)

// maxAllowed bounds a list that is gone through for each GPU.
const maxAllowed = 64

func (c *Config) checkDetect(fail failer) {
	d := &c.Detect
	if l := d.CostCapLabel; l != "" && !slices.Contains(c.Kubernetes.PodLabels, l) {
		fail("detect.cost_cap_label", "found %q, allowed: one of kubernetes.pod_labels, as other labels are not read", clean(l))
	}
	if len(d.UnallocatedAllowed) > maxAllowed {
		fail("detect.unallocated_allowed", "found %d owners, allowed: at most %d", len(d.UnallocatedAllowed), maxAllowed)
	}
	if len(d.PowerLimits) > maxAllowed {
		fail("detect.power_limits", "found %d limits, allowed: at most %d", len(d.PowerLimits), maxAllowed)
	}
	for i, o := range d.UnallocatedAllowed {
		if kind, id, ok := strings.Cut(o, ":"); !ok || kind == "" || id == "" || !plainName(o) {
			fail(fmt.Sprintf("detect.unallocated_allowed[%d]", i), "found %q, allowed: kind:id as gpuvigil shows owners, such as service:dcgm.service or user:1000", clean(o))
		}
	}
}
