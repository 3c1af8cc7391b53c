package collector

import (
	"cmp"
	"slices"
)

// Sort puts the lists into their order.
func (i *Inventory) Sort() {
	slices.SortFunc(i.Runtimes, func(a, b Runtime) int {
		return cmp.Or(compareOwners(a.Owner, b.Owner), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Version, b.Version))
	})
	slices.SortFunc(i.Images, func(a, b Image) int {
		return cmp.Or(compareOwners(a.Owner, b.Owner), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(i.Datasets, func(a, b Dataset) int {
		return cmp.Or(compareOwners(a.Owner, b.Owner), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Mount, b.Mount))
	})
	slices.SortFunc(i.APIs, func(a, b API) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), compareOwners(a.Owner, b.Owner), cmp.Compare(a.Model, b.Model))
	})
}
