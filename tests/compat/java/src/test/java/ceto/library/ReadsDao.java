package ceto.library;

import com.datastax.oss.driver.api.mapper.annotations.Dao;
import com.datastax.oss.driver.api.mapper.annotations.Increment;
import com.datastax.oss.driver.api.mapper.annotations.Select;

/** What the application counts. */
@Dao
public interface ReadsDao {
  @Increment(entityClass = Reads.class)
  void read(String shelf, long count);

  @Select
  Reads find(String shelf);
}
