package alerting

import (
	"slices"
	"strings"

	"gpuvigil/internal/store"
)

// ForgetIncidents removes from a state file what was said of incidents: none of them goes
// on. That receivers got their digests and signs of life stays known, or they would get
// them twice.
func ForgetIncidents(tx *store.Tx) error {
	var keys []string
	tx.Range(store.Outbox, "", func(k string, _ []byte) bool {
		if _, id, _ := strings.Cut(k, keySep); !slices.ContainsFunc([]string{digestRule + "-", Watchdog}, func(p string) bool { return strings.HasPrefix(id, p) }) {
			keys = append(keys, k)
		}
		return true
	})
	for _, k := range keys {
		if err := tx.Delete(store.Outbox, k); err != nil {
			return err
		}
	}
	return nil
}
