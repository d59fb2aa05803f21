package ceto.library;

import com.datastax.oss.driver.api.mapper.annotations.ClusteringColumn;
import com.datastax.oss.driver.api.mapper.annotations.Computed;
import com.datastax.oss.driver.api.mapper.annotations.Entity;
import com.datastax.oss.driver.api.mapper.annotations.PartitionKey;
import com.datastax.oss.driver.api.mapper.annotations.PropertyStrategy;
import com.datastax.oss.driver.api.mapper.entity.naming.GetterStyle;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A row with collections and a user type; immutable. */
@Entity
@PropertyStrategy(mutable = false, getterStyle = GetterStyle.FLUENT)
public record Book(
    @PartitionKey String shelf,
    @ClusteringColumn int place,
    String title,
    Set<String> authors,
    List<String> chapters,
    Map<String, Integer> ratings,
    Address location,
    @Computed("writetime(title)") long written) {}
