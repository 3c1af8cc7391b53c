//go:build race

package trial

// slow is by how much less of the healthy fleet is watched with the race detector, which
// makes everything ten times as slow.
const slow = 10
