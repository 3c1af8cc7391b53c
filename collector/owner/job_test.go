package owner

import (
	"regexp"
	"testing"

	"gpuvigil/collector"
)

// TestJobsOfTheClusterAreDescribedAsTheNodes: what the cluster role says of a user must
// be what the agents say, or nothing can be joined.
func TestJobsOfTheClusterAreDescribedAsTheNodes(t *testing.T) {
	key := []byte("0123456789abcdef")
	rules := []Rule{
		{Account: regexp.MustCompile("^proj1$"), Partition: regexp.MustCompile("^gpu$"), Team: "nlp", CostCenter: "4711"},
		{User: regexp.MustCompile("^ada$"), Team: "vision", Stage: "training"},
		{User: regexp.MustCompile("^1002$"), Team: "robots"},
	}
	f := func(form UserForm, job Job, team, user string) {
		t.Helper()
		j, err := NewJobs(form, key, rules)
		if err != nil {
			t.Fatal(err)
		}
		job.ID = "slurm/7"
		w, shown := j.Describe(job)
		if w.Owner != (collector.Owner{Kind: "job", ID: "slurm/7", Team: team}) || shown != user {
			t.Errorf("%s: job %+v is %+v of user %q, want team %q, user %q", form, job, w.Owner, shown, team, user)
		}
	}
	node := users{form: UserHash, key: key}
	f(UserID, Job{UID: 1001, User: "ada", Account: "proj1", Partition: "gpu"}, "nlp", "1001")
	f(UserHash, Job{UID: 1001, User: "ada", Account: "proj2", Partition: "gpu"}, "vision", node.show(1001))
	f(UserName, Job{UID: 1002, User: "bob"}, "robots", "bob")
	f(UserID, Job{UID: -1, User: "ada"}, "vision", "")
	f(UserHash, Job{UID: -1, User: "ada"}, "vision", "")
	f(UserName, Job{UID: -1, User: "ada"}, "vision", "ada")
	if _, err := NewJobs(UserHash, []byte("short"), nil); err == nil {
		t.Error("a short key passes")
	}
}
