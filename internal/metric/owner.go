package metric

// GPUState is what a GPU is to the one who pays for it, each from evidence of its
// own: busy does work; idle_held has a context open and does none;
// held_without_process was given to somebody and has no context; free was given to
// nobody and has none; unavailable is faulted or drained; unobserved is time of
// which the agent has no fresh reading.
var GPUState = &Dimension{Label: "state", Values: []string{"busy", "idle_held", "held_without_process", "free", "unavailable", "unobserved"}}

// Stages are the stages of work that a workload can be in.
var Stages = []string{"data_preparation", "training", "fine_tuning", "evaluation", "inference", "notebook"}
