package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// testFile is what `promtool test rules` reads.
type testFile struct {
	RuleFiles          []string    `yaml:"rule_files"`
	EvaluationInterval string      `yaml:"evaluation_interval"`
	Tests              []testGroup `yaml:"tests"`
}

type testGroup struct {
	Name     string        `yaml:"name"`
	Interval string        `yaml:"interval"`
	Input    []inputSeries `yaml:"input_series"`
	Alerts   []alertTest   `yaml:"alert_rule_test,omitempty"`
	Exprs    []exprTest    `yaml:"promql_expr_test,omitempty"`
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type alertTest struct {
	EvalTime string          `yaml:"eval_time"`
	Name     string          `yaml:"alertname"`
	Expected []expectedAlert `yaml:"exp_alerts"`
}

type expectedAlert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

type exprTest struct {
	Expr     string           `yaml:"expr"`
	EvalTime string           `yaml:"eval_time"`
	Expected []expectedSample `yaml:"exp_samples"`
}

type expectedSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// PromtoolTests returns tests of the generated rules for `promtool test rules`: for
// each rule a case in which it fires, or records what it should, and one in which
// it stays silent. The options are those of the rules.
func PromtoolTests(o Options) ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f := testFile{RuleFiles: []string{RulesFile}, EvaluationInterval: "1m"}
	for _, g := range catalogue(o) {
		for _, c := range g.cases {
			f.Tests = append(f.Tests, c.test(true), c.test(false))
			for _, e := range c.also {
				f.Tests = append(f.Tests, c.alerts(e))
			}
		}
	}
	return marshal(f)
}

func (c promCase) test(fires bool) testGroup {
	e := example{name: "is silent", input: c.silent}
	if fires {
		e = example{"fires", c.firing, []told{{c.labels, c.summary}}}
	}
	if c.rule.Record == "" {
		return c.alerts(e)
	}
	expected := []expectedSample{}
	for _, sample := range e.tells {
		expected = append(expected, expectedSample{seriesName(c.rule.Record, sample.labels), c.value})
	}
	t := c.over(e)
	t.Exprs = []exprTest{{Expr: c.rule.Record, EvalTime: duration(c.at), Expected: expected}}
	return t
}

// alerts tests that the rule fires over the example as it tells, and not otherwise.
func (c promCase) alerts(e example) testGroup {
	a := alertTest{EvalTime: duration(c.at), Name: c.rule.Alert, Expected: []expectedAlert{}}
	for _, alert := range e.tells {
		annotations := map[string]string{}
		for name, text := range c.rule.Annotations {
			annotations[name] = expand(text, alert.labels)
		}
		if alert.summary != "" {
			annotations["summary"] = alert.summary
		}
		a.Expected = append(a.Expected, expectedAlert{alert.labels, annotations})
	}
	t := c.over(e)
	t.Alerts = []alertTest{a}
	return t
}

func (c promCase) over(e example) testGroup {
	return testGroup{Name: c.rule.Alert + c.rule.Record + " " + e.name, Interval: "1m", Input: inputOf(e.input)}
}

// inputOf writes series as promtool reads them. A case without input still needs
// one: a series that no rule asks for.
func inputOf(list []series) []inputSeries {
	if len(list) == 0 {
		list = []series{{"something_else", 1, 0, 70}}
	}
	var out []inputSeries
	for _, s := range list {
		out = append(out, inputSeries{s.name, fmt.Sprintf("%s+%sx%d", number(s.first), number(s.step), s.minutes)})
	}
	return out
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// seriesName writes a series with its labels sorted.
func seriesName(name string, labels map[string]string) string {
	out := name
	for i, l := range slices.Sorted(maps.Keys(labels)) {
		out += string("{,"[min(i, 1)]) + l + "=" + strconv.Quote(labels[l])
	}
	return out + "}"
}

var labelTemplate = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)

// expand does what Prometheus does with an annotation that has labels in it.
func expand(text string, labels map[string]string) string {
	return labelTemplate.ReplaceAllStringFunc(text, func(m string) string { return labels[labelTemplate.FindStringSubmatch(m)[1]] })
}
