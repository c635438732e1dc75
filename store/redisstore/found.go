package redisstore

import (
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// foundEach is how many values most tasks have in a reply (lua/prelude/task.lua),
// besides those of their lane.
const foundEach = 2

// lane is what its tasks have in common in a reply.
type lane struct {
	queue, sourceUID, sourceID, pool string
	sourceVersion                    int64
	slot                             string
}

func readLane(r *reply) lane {
	return lane{r.text(), r.text(), r.text(), r.text(), r.integer(), r.text()}
}

// appendTask appends the task that is next in a reply: as a grant, which has no
// token yet.
func appendTask(grants []dispatch.Grant, l *lane, r *reply, now time.Time) ([]dispatch.Grant, error) {
	id, raw := dispatch.TaskID(l.slot+"-"+r.text()), r.text()
	more, _ := r.optionalArray()
	if r.err != nil {
		return nil, r.err
	}
	grants = append(grants, dispatch.Grant{SourceVersion: l.sourceVersion})
	t := &grants[len(grants)-1].Task
	t.Queue, t.SourceUID, t.SourceID, t.Pool = l.queue, l.sourceUID, l.sourceID, l.pool
	if err := decodeRecord(id, raw, now, t); err != nil {
		return nil, err
	}
	return grants, decodeMore(t, more)
}

// decodeLane appends the tasks of one lane that a script gave back, none for nil: as
// grants, which have no token yet.
func decodeLane(grants []dispatch.Grant, v any, now time.Time) ([]dispatch.Grant, error) {
	values, ok := v.([]any)
	if !ok || len(values) == 0 {
		return grants, nil
	}
	r := &reply{values: values}
	l := readLane(r)
	grants = slices.Grow(grants, (len(values)-r.next)/foundEach)
	for r.more() {
		var err error
		if grants, err = appendTask(grants, &l, r, now); err != nil {
			return nil, err
		}
	}
	return grants, r.err
}

// decodeTasks reads tasks, without those that do not exist.
func decodeTasks(values []any, now time.Time) ([]*dispatch.Task, error) {
	tasks := make([]*dispatch.Task, 0, len(values))
	for _, v := range values {
		found, err := decodeLane(nil, v, now)
		if err != nil {
			return nil, err
		}
		for i := range found {
			tasks = append(tasks, &found[i].Task)
		}
	}
	return tasks, nil
}
