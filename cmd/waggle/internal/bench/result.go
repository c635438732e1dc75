package bench

// Result is everything that a bench found. Rates are per second, times in
// seconds.
type Result struct {
	Machine    Machine         `json:"machine"`
	Throughput []ThroughputRow `json:"throughput,omitempty"`
	Floor      []FloorRow      `json:"floor,omitempty"`
	Empty      []EmptyRow      `json:"empty,omitempty"`
	Latency    []LatencyRow    `json:"latency,omitempty"`
	Wake       []WakeRow       `json:"wake,omitempty"`
	Flat       []FlatRow       `json:"flat,omitempty"`
	Requeue    []RequeueRow    `json:"requeue,omitempty"`
	Renew      []RenewRow      `json:"renew,omitempty"`
	Idle       []IdleRow       `json:"idle,omitempty"`
}

// Machine is what the bench ran on.
type Machine struct {
	Time   string `json:"time"`
	System string `json:"system"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	Redis  string `json:"redis,omitempty"`
	// LoadBefore is the load average of the last minute when the bench began: above 0, others used the machine.
	LoadBefore string `json:"load_before,omitempty"`
	Server     string `json:"server,omitempty"`
	Repeats    int    `json:"repeats"`
	// Processors that each dispatcher may use; 0 = all.
	Processors int `json:"dispatcher_processors,omitempty"`
	// Rate is how many tasks a second whole lives were submitted at; 0 = as fast as it went, beside
	// as many that waited.
	Rate int `json:"rate,omitempty"`
}

// ThroughputRow is one store, workload, batch and number of collectors.
type ThroughputRow struct {
	Store      string `json:"store"`
	Workload   string `json:"workload"`
	Batch      int    `json:"batch"`
	Collectors int    `json:"collectors"`
	Tasks      int    `json:"tasks"`
	// Submit, Work, Carried and Life are tasks a second: submitted; fetched and
	// reported; the same with reports carried in FetchTask; submitted, fetched and
	// reported at once.
	Submit  Sample `json:"submit"`
	Work    Sample `json:"fetch_report"`
	Carried Sample `json:"fetch_report_carried"`
	Life    Sample `json:"whole_life"`
	// SubmitCost, WorkCost and LifeCost are of the median repeat by Redis CPU.
	SubmitCost Cost `json:"submit_cost"`
	WorkCost   Cost `json:"fetch_report_cost"`
	LifeCost   Cost `json:"whole_life_cost"`
	// Retries are calls that a dispatcher refused for load.
	Retries int `json:"retries"`
}

// FloorRow is what the least that a task needs of Redis costs, pipelined.
type FloorRow struct {
	Batch    int    `json:"batch"`
	Submit   Sample `json:"submit"`
	Work     Sample `json:"fetch_report"`
	WorkCPU  Sample `json:"fetch_report_redis_cpu_seconds"`
	Commands int    `json:"fetch_report_commands"`
	// SubmitCPU is processor time of Redis for each task.
	SubmitCPU Sample `json:"submit_redis_cpu_seconds"`
}

// EmptyRow is what gRPC calls cost that do nothing, one at a time for each collector.
type EmptyRow struct {
	Collectors int    `json:"collectors"`
	Calls      Sample `json:"calls"`
	// DispatcherCPU is processor time of the dispatchers for each call, in seconds.
	DispatcherCPU Sample `json:"dispatcher_cpu_seconds"`
}

// LatencyRow is how long single calls took.
type LatencyRow struct {
	Store      string  `json:"store"`
	Call       string  `json:"call"`
	Collectors int     `json:"collectors"`
	Batch      int     `json:"batch"`
	Latency    Latency `json:"latency"`
}

// WakeRow is the time from a submit to the delivery at a parked collector.
type WakeRow struct {
	Store   string  `json:"store"`
	Parked  int     `json:"parked"`
	Latency Latency `json:"latency"`
	// Claims are those of all dispatchers for each task.
	Claims float64 `json:"claims_per_task"`
}

// FlatRow is what fetches cost with so many tasks in so many queues.
type FlatRow struct {
	// Over is what the row is one of several sizes of: backlog or queues.
	Over    string  `json:"over"`
	Store   string  `json:"store"`
	Backlog int     `json:"backlog"`
	Queues  int     `json:"queues"`
	Fetch   Latency `json:"fetch"`
	Report  Latency `json:"report"`
	// ScriptSeconds is the time of the scripts of a fetch, for each call.
	ScriptSeconds float64 `json:"fetch_script_seconds"`
	FetchCost     Cost    `json:"fetch_cost"`
	// TaskBytes of Redis memory for each queued task.
	TaskBytes float64 `json:"task_bytes"`
	// Scripts ran once the tasks were queued; Slow is what took 5 ms and more meanwhile, the
	// longest first.
	Scripts int    `json:"scripts"`
	Slow    []Slow `json:"slow,omitempty"`
	// RedisWaited is how many seconds of that Redis was ready to run and had no processor:
	// it makes scripts slow that are not.
	RedisWaited float64 `json:"redis_waited_seconds"`
}

// RequeueRow is how soon leases that ran out could be handed out again.
type RequeueRow struct {
	Store string `json:"store"`
	// Delivered leases ran out while collectors were parked; Lag is from the
	// deadline of each to its next delivery.
	Delivered int     `json:"delivered_leases"`
	Lag       Latency `json:"lag"`
	// Leases ran out at the same moment; All is how many seconds later all of
	// them were requeued, Fetch how long single fetches took meanwhile.
	Leases int     `json:"leases"`
	All    float64 `json:"all_requeued_seconds"`
	Fetch  Latency `json:"fetch"`
}

// RenewRow is what it costs to keep leases.
type RenewRow struct {
	Store      string  `json:"store"`
	Leases     int     `json:"leases"`
	Collectors int     `json:"collectors"`
	Renewal    Latency `json:"renewal"`
	Cost       Cost    `json:"cost_per_lease"`
	// RedisShare is the part of a core that renewing all of them each 10 s takes.
	RedisShare float64 `json:"redis_core_share"`
}

// IdleRow is what parked fetches cost while nothing happens.
type IdleRow struct {
	Store  string `json:"store"`
	Parked int    `json:"parked"`
	// Calls are Redis scripts a second; the shares are parts of a core.
	Calls           float64 `json:"redis_calls_per_second"`
	RedisShare      float64 `json:"redis_core_share"`
	DispatcherShare float64 `json:"dispatcher_core_share"`
	// Bytes of the dispatcher's memory for each parked fetch, with little garbage beside.
	Bytes float64 `json:"bytes_per_fetch"`
}
