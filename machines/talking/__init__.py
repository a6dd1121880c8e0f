"""What machines share whose model calls tools: who answers, what an answer brings, and JSON that anybody can be sent."""
