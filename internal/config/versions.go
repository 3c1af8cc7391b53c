package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpuvigil/internal/metric"
)

// Change says who may change what runs on the pool that the node belongs to.
type Change string

// The kinds of pools.
const (
	Free       Change = "free"       // people try things: what is new is inventory and no finding
	Controlled Change = "controlled" // what is not known here, or not isolated, is a finding
)

// Versions says which versions are wanted.
type Versions struct {
	// Approved are the versions that a component may have, as globs by component; of a
	// component that is not in it nothing is judged.
	Approved map[string][]string `yaml:"approved"`
	KnownBad []BadVersion        `yaml:"known_bad"` // beside those that the program knows
}

// BadVersion is versions of a component that must not run here.
type BadVersion struct {
	Component string   `yaml:"component"`
	Versions  []string `yaml:"versions"` // globs
	Why       string   `yaml:"why"`
}

func (v *Versions) check(fail func(key, format string, args ...any)) {
	for _, component := range slices.Sorted(maps.Keys(v.Approved)) {
		checkComponent(component, "versions.approved", fail)
		checkGlobs(v.Approved[component], "versions.approved."+clean(component), "versions", "570.*", fail)
	}
	for i, b := range v.KnownBad {
		key := fmt.Sprintf("versions.known_bad[%d]", i)
		checkComponent(b.Component, key+".component", fail)
		if b.Why == "" || !plainName(b.Why) {
			fail(key+".why", "found %q, allowed: a sentence that says what is wrong with it", clean(b.Why))
		}
		checkGlobs(b.Versions, key+".versions", "versions", "570.*", fail)
	}
}

// checkComponent holds a name against those that versions are ever known of: of a
// misspelt one nothing would be judged, without a word.
func checkComponent(name, key string, fail func(key, format string, args ...any)) {
	known := slices.Concat(metric.VersionParts.Values, metric.RuntimeParts)
	if !slices.Contains(known, name) {
		fail(key, "found the component %q, allowed: %s", clean(name), strings.Join(known, ", "))
	}
}

// checkGlobs holds globs of what, such as 570.*, against what path.Match reads.
func checkGlobs(globs []string, key, what, such string, fail func(key, format string, args ...any)) {
	if len(globs) == 0 {
		fail(key, "found none, allowed: one or more %s; * stands for any letters, as in %s", what, such)
	}
	for i, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			fail(fmt.Sprintf("%s[%d]", key, i), "found %q, allowed: %s, in which * stands for any letters and ? for one, as in %s", clean(glob), what, such)
		}
	}
}
