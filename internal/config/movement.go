package config

// Movement is what owners move: bytes, connections, CPU time and memory.
type Movement struct {
	Enabled    bool `yaml:"enabled"`
	Addresses  bool `yaml:"addresses"`        // keep public addresses in memory for the evidence of findings
	Privileged bool `yaml:"privileged_reads"` // read files that only a process's own user or an administrator may read
}

func defaultMovement() Movement { return Movement{Enabled: true} }
