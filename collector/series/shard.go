package series

import (
	"crypto/md5"
	"encoding/binary"
)

// Shard is the part of all nodes that one of several processes looks at. The zero Shard
// has all of them.
type Shard struct {
	Index, Of int    // which one, from 0, of how many; Of 0 or 1: of one
	By        string // the label whose values are spread; "": by the node's name
}

// Has reports whether what goes by the key is in the shard. The hash is that of the action
// hashmod in Prometheus' relabelling, so that a sender may choose the same.
func (s Shard) Has(key string) bool {
	if s.Of <= 1 {
		return true
	}
	sum := md5.Sum([]byte(key))
	return binary.BigEndian.Uint64(sum[8:])%uint64(s.Of) == uint64(s.Index)
}

// shut reports why a set is not taken because of the shard. One whose labels do not name
// its node is judged once that is known: see Assembler.mine.
func (a *Assembler) shut(s *set, told string) refusal {
	by := a.cfg.Shard.By
	if by == "" {
		if told == "" || a.cfg.Shard.Has(told) {
			return none
		}
		// Others of the node's series may not name it.
		a.aliases.foreign(s.value("instance"), told, 16*a.cfg.MaxNodes)
		return otherShard
	}
	key := s.value(by)
	switch {
	case key == "":
		return noShardLabel
	case !a.cfg.Shard.Has(key):
		return otherShard
	}
	return none
}

// mine reports whether snapshots are made of the node.
func (a *Assembler) mine(n *node) bool { return a.cfg.Shard.By != "" || a.cfg.Shard.Has(n.name) }

// foreign remembers the node that an instance of another shard is of. Of too many some are
// forgotten, until their series are seen anew.
func (a *aliases) foreign(instance, node string, most int) {
	for _, of := range []string{instance, hostOf(instance)} {
		if of == "" || a.others[of] == node {
			continue
		}
		if len(a.others) >= most {
			clear(a.others)
		}
		a.others[of], a.changed = node, true
	}
}
