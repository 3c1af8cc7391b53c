//go:build race

package trial

// raced says that the race detector looks on, which makes everything ten times as slow.
const raced = true
