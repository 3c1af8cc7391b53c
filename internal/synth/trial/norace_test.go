//go:build !race

package trial

const slow = 1
