package dashboards

import (
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The colours of the severities.
const (
	colorPage   = "red"
	colorTicket = "orange"
	colorInfo   = "blue"
)

// word is what a value, or every value from it on, means.
type word struct {
	value  float64
	onward bool
	text   string
	color  string
}

// properties are the overrides that make one query of a panel look its own way.
func properties(q query) []dashboard.DynamicConfigValue {
	set := []dashboard.DynamicConfigValue{{Id: "unit", Value: q.unit}}
	if q.alarm != "" {
		set = append(set, dashboard.DynamicConfigValue{Id: "thresholds", Value: dashboard.ThresholdsConfig{
			Mode:  dashboard.ThresholdsModeAbsolute,
			Steps: []dashboard.Threshold{{Color: "green"}, {Value: cog.ToPtr(1.0), Color: q.alarm}},
		}})
	}
	if len(q.words) > 0 {
		set = append(set, dashboard.DynamicConfigValue{Id: "mappings", Value: mappings(q.words)})
	}
	return set
}

// cell colours the query's cells of a table, if it has colours, and draws shares
// of a whole as bars.
func cell(q query) []dashboard.DynamicConfigValue {
	switch {
	case len(q.words) > 0 || q.alarm != "":
		return []dashboard.DynamicConfigValue{{Id: "custom.cellOptions", Value: map[string]string{"type": "color-text"}}}
	case q.whole:
		return []dashboard.DynamicConfigValue{
			{Id: "custom.cellOptions", Value: map[string]string{"type": "gauge", "mode": "basic"}},
			{Id: "min", Value: 0},
			{Id: "max", Value: 1},
		}
	}
	return nil
}

// mappings shows words instead of values.
func mappings(words []word) []dashboard.ValueMapping {
	exact := map[string]dashboard.ValueMappingResult{}
	var all []dashboard.ValueMapping
	for i, w := range words {
		result := dashboard.ValueMappingResult{Text: &w.text, Color: &w.color, Index: cog.ToPtr(int32(i))}
		if !w.onward {
			exact[strconv.FormatFloat(w.value, 'g', -1, 64)] = result
			continue
		}
		all = append(all, dashboard.ValueMapping{RangeMap: &dashboard.RangeMap{
			Type:    dashboard.MappingTypeRangeToText,
			Options: dashboard.DashboardRangeMapOptions{From: &w.value, Result: result},
		}})
	}
	return append(all, dashboard.ValueMapping{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: exact}})
}
