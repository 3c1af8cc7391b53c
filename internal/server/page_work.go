package server

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector"
)

// workRow is what one owner runs, in words.
type workRow struct{ Owner, Loaded, Serves, Data string }

// work lists what owners run: at most as many as the page lists of anything.
func (p *page) work(i *collector.Inventory) {
	if i == nil {
		return
	}
	rows := map[collector.Owner]*workRow{}
	var order []collector.Owner
	row := func(o collector.Owner) *workRow {
		if rows[o] == nil {
			rows[o] = &workRow{Owner: o.String()}
			order = append(order, o)
		}
		return rows[o]
	}
	add := func(cell *string, text string) { *cell = strings.TrimPrefix(*cell+", "+text, ", ") }
	for _, r := range i.Runtimes {
		add(&row(r.Owner).Loaded, r.Component+" "+r.Version)
	}
	for _, a := range i.APIs {
		add(&row(a.Owner).Serves, served(a))
	}
	for _, d := range i.Datasets {
		if d.Owner == (collector.Owner{}) {
			rows[d.Owner] = cmp.Or(rows[d.Owner], &workRow{Owner: "everybody on the node"})
			if !slices.Contains(order, d.Owner) {
				order = append(order, d.Owner)
			}
		}
		add(&row(d.Owner).Data, strings.TrimSpace(d.Kind+" "+cmp.Or(d.Source, d.Mount)))
	}
	for _, o := range order[:min(len(order), maxListed)] {
		r := rows[o]
		p.Work = append(p.Work, workRow{oneLine(r.Owner), oneLine(cmp.Or(r.Loaded, none)), oneLine(cmp.Or(r.Serves, none)), oneLine(cmp.Or(r.Data, none))})
	}
}

// served says what is served at a port, and who can reach it.
func served(a collector.API) string {
	text := "port " + strconv.Itoa(a.Port)
	if a.Model != "" {
		text = a.Model + " at " + text
	}
	if a.Scope != "" {
		text += " (" + a.Scope + ")"
	}
	if a.Approved != nil && !*a.Approved {
		text += ", not on the list of approved models"
	}
	return text
}
