package synth

import (
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// PriceOfGPU is what an hour of a GPU costs, in USD.
const PriceOfGPU = 2.5

// CapLabel is the label by which a pod declares what it may cost, in USD.
const CapLabel = "example.com/max-cost"

const days = 24 * time.Hour

// budgetFaults are of money. What is spent is not of the node: whoever keeps account of its
// snapshots knows it.
func budgetFaults() []*Case {
	spend := []rules.ID{"spend"}
	return []*Case{
		{Name: "budget burns", Effect: "a job of 8 GPUs at $2.50 an hour, for a team of which a month's budget of $10,000 is declared then: it lasts for 20 days", Life: JobStage,
			Rules: spend, Learn: 5 * days, Tenants: []int{0}, Budget: 10000, Late: true},
		{Name: "budget used up", Effect: "a job of 8 GPUs at $2.50 an hour has cost its team's budget of a month, $1,200, after 60 h", Life: JobStage,
			Rules: spend, Learn: 57 * time.Hour, Lasts: 2 * time.Hour, Tenants: []int{0}, Budget: 1200},
		{Name: "spending runs away", Effect: "a team that had one GPU takes all 8, which its month's budget of $4,000 cannot hold, on a node that has the alert budget alone", Life: LabStage, Alone: true,
			Rules: spend, Learn: 8 * days, Lasts: 6 * time.Hour, Tenants: []int{0}, Budget: 4000,
			begin: func(n *Node) { n.bigJob() }},
		{Name: "job over its cap", Effect: "a pod declares that it may cost $100, and has cost so much after 5 h", Life: PodStage, Capped: true,
			Rules: spend, Warm: 5 * time.Hour, Tenants: []int{0},
			setup: func(n *Node) { n.tenants[0].declare(100) }},
	}
}

// approved looks like what has to be told, and somebody has said that it is right.
func approved() []*Case {
	return []*Case{
		{Name: "approved big job", Effect: "a team that had one GPU takes all 8 for three days: within its month's budget of $9,000, and within the $1,300 that the job declares", Life: LabStage, Capped: true,
			Learn: 8 * days, Warm: 3 * time.Hour, Lasts: 3 * days, Budget: 9000,
			begin: func(n *Node) { n.bigJob().declare(1300) }},
		{Name: "a month ends", Effect: "a steady job's spending comes near its team's budget, and begins at nothing with the next month", Life: JobStage,
			Learn: 27 * days, Warm: 3 * time.Hour, Lasts: 3 * days, Budget: 15500},
		{Name: "declared MPS", Effect: "two teams' pods are clients of one MPS server, on a GPU that was given to both", Life: LabStage, Warm: 3 * time.Hour, Lasts: 8 * time.Hour,
			begin: func(n *Node) { n.shareByMPS(n.gpus[1]) }},
		{Name: "declared time-slicing", Effect: "two teams' pods are in turn on a GPU that was given to both, in a controlled pool", Life: LabStage, Warm: 3 * time.Hour, Lasts: 8 * time.Hour, Controlled: true,
			begin: func(n *Node) { n.lend(n.gpus[1]) }},
	}
}

// bigJob puts a training in a pod of the first tenant's team on all GPUs but the one that
// the team has.
func (n *Node) bigJob() *tenant {
	for len(n.tenants) > 1 {
		n.remove(n.tenants[1])
	}
	t := n.trainingJob(4712, true)
	return n.add(t, all()[1:]...)
}

// declare says what the tenant may cost.
func (t *tenant) declare(usd int) {
	t.labels = []collector.Label{{Name: CapLabel, Value: strconv.Itoa(usd)}}
}
