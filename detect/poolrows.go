package detect

import (
	"slices"
	"strings"

	"gpuvigil/collector"
)

// PoolOf names the pool of a node: the models and boards of its GPUs. It is empty for a
// node without GPUs.
func PoolOf(s *collector.Snapshot) string {
	var boards []string
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if b := strings.TrimSuffix(g.Model+"/"+g.BoardPart, "/"); g.Model != "" && !slices.Contains(boards, b) {
			boards = append(boards, b)
		}
	}
	slices.Sort(boards)
	return strings.Join(boards, "+")
}

// PoolRows returns the versions of a node's components. Libraries in containers are not
// among them: they are the business of the job that they belong to.
func PoolRows(s *collector.Snapshot) []PoolRow {
	pool := PoolOf(s)
	if pool == "" {
		return nil
	}
	var rows []PoolRow
	for _, v := range s.Node.Versions {
		if slices.Contains(withDriver, v.Component) {
			continue // the driver's own row says it
		}
		rows = append(rows, PoolRow{s.Node.Name, pool, v.Component, v.Value, s.Time})
	}
	return rows
}
