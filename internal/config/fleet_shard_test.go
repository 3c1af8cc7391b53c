package config

import (
	"strings"
	"testing"
	"time"
)

func TestFleetShard(t *testing.T) {
	c, err := Parse("c.yml", []byte("fleet: {shard: {index: 3, of: 4, by: cluster}, leader: {lease: gpuvigil-fleet, namespace: gpuvigil, duration: 30s}}"))
	if err != nil || c.Fleet.Shard != (FleetShard{3, 4, "cluster"}) || c.Fleet.Leader != (FleetLeader{"", "gpuvigil-fleet", "gpuvigil", Duration(30 * time.Second)}) {
		t.Fatalf("read as %+v and %+v, error %v", c.Fleet.Shard, c.Fleet.Leader, err)
	}
	c, err = Parse("c.yml", nil)
	if err != nil || c.Fleet.Shard.Of != 1 || c.Fleet.Leader.Given() {
		t.Errorf("without a configuration there are %d shards and a leader is chosen: %v, error %v", c.Fleet.Shard.Of, c.Fleet.Leader.Given(), err)
	}
	f := func(text, key, allowed string) {
		t.Helper()
		_, err := Parse("c.yml", []byte("fleet: {"+text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "allowed: "+allowed) {
			t.Errorf("fleet: {%s}: error %v, want one about %s that says what is allowed: %s", text, err, key, allowed)
		}
	}
	f("shard: {of: 0}", "fleet.shard.of", "from 1 to 1024")
	f("shard: {of: 1025}", "fleet.shard.of", "from 1 to 1024")
	f("shard: {index: 1}", "fleet.shard.index", "from 0 to 0")
	f("shard: {index: 4, of: 4}", "fleet.shard.index", "from 0 to 3")
	f("shard: {index: -1, of: 4}", "fleet.shard.index", "from 0 to 3")
	f("shard: {of: 2, by: 'a-b'}", "fleet.shard.by", "the name of a label")
	f("leader: {file: /a/b, lease: x}", "fleet.leader", "one of them")
	f("leader: {file: b}", "fleet.leader.file", "the path of a file")
	f("leader: {file: /a/../b}", "fleet.leader.file", "the path of a file")
	f("leader: {lease: A_b}", "fleet.leader.lease", "the name of a Lease")
	f("leader: {lease: a, namespace: 'a/b'}", "fleet.leader.namespace", "the name of a namespace")
	f("leader: {file: /a/b, namespace: x}", "fleet.leader.namespace", "the name of a namespace")
	f("leader: {file: /a/b, duration: 4s}", "fleet.leader.duration", "from 5s to 5m")
	f("leader: {file: /a/b, duration: 1h}", "fleet.leader.duration", "from 5s to 5m")
}
