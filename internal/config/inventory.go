package config

import (
	"fmt"
	"path"
	"strings"
)

// Inventory is what is looked at of what runs on the node.
type Inventory struct {
	// Runtimes reads what takes the right to trace a process: its libraries, and the
	// ports that it listens at.
	Runtimes bool `yaml:"runtimes"`
	// Root is the node's root directory, where packages, programs and containers
	// are described; empty: they are not looked at.
	Root string `yaml:"root"`
	// ApprovedModels are globs; none: models are not judged.
	ApprovedModels []string `yaml:"approved_models"`
}

func (i *Inventory) check(fail func(key, format string, args ...any)) {
	if i.Root != "" && !strings.HasPrefix(i.Root, "/") {
		fail("inventory.root", "found %q, allowed: a path that begins with /, or nothing", clean(i.Root))
	}
	for n, glob := range i.ApprovedModels {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			fail(fmt.Sprintf("inventory.approved_models[%d]", n), "found %q, allowed: a name in which * stands for any letters but / and ? for one", clean(glob))
		}
	}
}
