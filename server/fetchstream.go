package server

import (
	"errors"
	"io"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// StreamingFetchTask is FetchTask for each message, one after the other. When the
// dispatcher drains, fetchStream ends it between two of them.
func (s *dispatchService) StreamingFetchTask(stream pb.DispatchService_StreamingFetchTaskServer) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := s.fetchOf(stream, request)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.StreamingFetchTaskResponse{Answer: answer}); err != nil {
			return err
		}
	}
}

func (s *dispatchService) fetchOf(stream pb.DispatchService_StreamingFetchTaskServer, request *pb.StreamingFetchTaskRequest) (*pb.FetchTaskResponse, error) {
	if request.GetFetch() == nil {
		var c checks
		c.fail("fetch", "", "must be set")
		return nil, c.err()
	}
	answer, err := s.FetchTask(stream.Context(), request.GetFetch())
	return answer, inside("fetch", err)
}
