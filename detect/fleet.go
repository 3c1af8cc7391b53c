package detect

// FleetConfig is what the detectors of the cluster role can be told. The zero value
// works untouched.
type FleetConfig struct{ Waiting WaitingConfig }

// FleetDetectors returns the detectors of the one role of a cluster, which sees the
// queues of its schedulers and no node.
func FleetDetectors(cfg FleetConfig) []Detector { return []Detector{NewWaitingJobs(cfg.Waiting)} }
