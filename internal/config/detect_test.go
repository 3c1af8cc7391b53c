package config

import (
	"slices"
	"strings"
	"testing"
)

func TestDetectKeys(t *testing.T) {
	c, err := Parse("c.yml", []byte("detect: {cost_cap_label: max-cost, unallocated_allowed: ['user:1000', 'service:dcgm.service'], power_limits: [500, 350.5]}\nkubernetes: {pod_labels: [app, max-cost]}"))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Detect; d.CostCapLabel != "max-cost" || !slices.Equal(d.UnallocatedAllowed, []string{"user:1000", "service:dcgm.service"}) || !slices.Equal(d.PowerLimits, []float64{500, 350.5}) {
		t.Errorf("read %+v", d)
	}
	for text, want := range map[string]string{
		"detect: {cost_cap_label: max-cost}":       `c.yml:1: detect.cost_cap_label: found "max-cost", allowed: one of kubernetes.pod_labels`,
		"detect: {power_limits: [500, 0]}":         `detect.power_limits[1]: found 0, allowed: 1 to 10000`,
		"detect: {power_limits: [-3]}":             `detect.power_limits[0]: found -3`,
		"detect: {unallocated_allowed: [dcgm]}":    `detect.unallocated_allowed[0]: found "dcgm", allowed: kind:id`,
		"detect: {unallocated_allowed: ['user:']}": `detect.unallocated_allowed[0]: found "user:"`,
		"detect: {unallocated_allowed: [" + strings.Repeat("'user:1',", maxAllowed) + "'user:1000']}": "at most 64",
	} {
		if _, err := Parse("c.yml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}
